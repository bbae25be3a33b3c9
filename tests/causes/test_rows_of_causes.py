"""Rows and rules of causes, held against each other."""

from typing import get_args

from rlcorr_cli.causes.judge import BY_FAMILY, RULES
from rlcorr_cli.causes.rows import FAULTY_ROWS
from rlcorr_cli.causes.table import CAUSES, NOISE, Family


def test_every_cause_of_a_gap_but_noise_is_sought_by_a_rule() -> None:
    assert [name for name, row in CAUSES.items() if row.sought == "rest"] == [NOISE]
    assert RULES.keys() == CAUSES.keys() - {NOISE}
    assert {rule for rules in BY_FAMILY.values() for rule in rules} == set(RULES.values())


def test_what_a_cause_is_not_sought_beside_is_sought_before_it() -> None:
    order = [row.name for family in get_args(Family) if family in BY_FAMILY for row in BY_FAMILY[family].values()]
    for name in order:
        assert {*CAUSES[name].not_beside} <= {"place", *order[: order.index(name)]}, name


def test_every_cause_that_sits_in_rows_tells_which_rows() -> None:
    assert FAULTY_ROWS.keys() == {name for name, row in CAUSES.items() if row.scope == "rows"}
