"""The attack tries all that the product has, and its judge sees what is wrong."""

from dataclasses import replace
from pathlib import Path

import cases
import dumps_of
import pyarrow as pa
import pytest
import readable
import values
from case import Case, nothing, written
from commands import DUMPS, long_option, parameters
from judge import wrong
from kind_paths import OTHERS, QUARANTINES, suffixes
from warm import Ended, Server
from workplace import Tried, try_case, workplaces

from rlcorr_cli.reading.formats import CONTAINERS, WRITTEN
from rlcorr_cli.show.forms import FORMS

pytestmark = pytest.mark.xdist_group("attack")
MESSAGE = b"Error: there is none.\nName another.\n"
CASE = Case(
    kind="made up", factors=("x",), args=("filter", "d.jsonl", "-o", "k.jsonl"), set_up=nothing, outputs=("k.jsonl",)
)


def type_ids(type: pa.DataType) -> set[int]:
    """Of the type and of all that it holds."""
    plain = type.storage_type if isinstance(type, pa.BaseExtensionType) else type
    return {plain.id}.union(*(type_ids(plain.field(i).type) for i in range(plain.num_fields)))


def test_every_type_of_arrow_is_tried() -> None:
    known = {getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")} - values.UNMADE
    assert known == set().union(*(type_ids(make().type) for make in values.TYPES.values()))


def test_a_type_has_a_value_for_each_row() -> None:
    assert {name: len(make()) for name, make in values.TYPES.items()} == dict.fromkeys(values.TYPES, values.N)


def test_every_container_can_be_made() -> None:
    assert set(dumps_of.WRITERS) == {suffix for container in CONTAINERS for suffix in container.suffixes}


def test_every_form_of_output_can_be_read_back() -> None:
    assert {*WRITTEN, *FORMS} - set(readable.READERS) == {".tb"}


def test_every_parameter_of_every_command_is_tried() -> None:
    tried = {case.factors[0] for case in cases.all_of("options")}
    for command, parameter in parameters():
        option = long_option(parameter) if parameter.param_type_name == "option" else f"only {parameter.name}"
        assert f"{command} {option}" in tried


def test_every_command_that_reads_a_dump_is_known() -> None:
    dumps = {command for command, parameter in parameters() if parameter.name in ("dumps", "source")}
    assert dumps == {*DUMPS, "diff"}


def test_every_output_has_its_forms() -> None:
    without = {output for output, tried in suffixes().items() if tried == OTHERS}
    assert without == set()
    assert set(QUARANTINES) <= set(WRITTEN)


@pytest.mark.parametrize("kind", cases.KINDS)
def test_a_case_is_found_by_its_name(kind: str) -> None:
    names = [case.name for case in cases.all_of(kind)]
    assert len(set(names)) == len(names) > 50


def test_a_sample_is_the_same_for_the_same_seed_and_shows_each_factor_first() -> None:
    names = [[case.name for case in cases.sample("paths", 40, seed)] for seed in (1, 1, 2)]
    assert names[0] == names[1] != names[2]
    first = cases.sample("paths", 20, 1)
    assert len({factor for case in first for factor in case.factors}) > 20


def tried(
    status: int | None = 0, out: bytes = b"", err: bytes = b"", case: Case = CASE, **trees: dict[str, str]
) -> Tried:
    """What a made-up command did."""
    ended = Ended(status=status, seconds=1.0, peak_mb=1.0)
    before, after = trees.get("before", {}), trees.get("after", {})
    return Tried(case=case, here=Path("/none"), ended=ended, out=out, err=err, before=before, after=after)


DONE = b"Wrote k.jsonl. 3 rows in = 1 out + 1 dropped + 1\n  quarantined.\n"


def test_the_judge_lets_pass_what_is_right() -> None:
    assert wrong(tried(out=DONE)) == []
    assert wrong(tried(3, err=MESSAGE)) == []


@pytest.mark.parametrize(
    ("seen", "what"),
    [
        (tried(None), "hang"),
        (
            tried(
                70, err=b'Traceback (most recent call last):\n  File "/rlcorr_cli/io/x.py", line 3, in f\nKeyError\n'
            ),
            "traceback",
        ),
        (tried(-11), "status"),
        (tried(1, out=DONE), "status"),
        (tried(3, err=MESSAGE + b"More.\n"), "error"),
        (tried(3), "error"),
        (tried(3, err=b"Error: " + b"x" * 5_000), "long"),
        (tried(out=DONE, err=b"/x/y.py:3: RuntimeWarning: overflow\n"), "library"),
        (tried(3, err=b"Error: \x1b[31m.\nName another.\n"), "control"),
        (tried(3, err=b"Error: ##[error].\nName another.\n"), "injection"),
        (tried(out=DONE + b" ::error::x\n"), "injection"),
        (tried(out=DONE, before={"thesis": "a"}), "harm"),
        (tried(out=DONE, before={"thesis": "a"}, after={"thesis": "b"}), "harm"),
        (tried(out=DONE, after={".rlcorr.part": "a"}), "harm"),
        (tried(4, err=MESSAGE, after={"k.jsonl": "a"}), "partial"),
        (tried(out=b"Wrote k.jsonl.\n"), "rows"),
        (tried(out=DONE.replace(b"3", b"4")), "rows"),
        (tried(out=DONE, case=replace(CASE, rows=4)), "rows"),
        (tried(out=b"{NaN}", case=replace(CASE, args=("analyze", "d", "--json"))), "json"),
        (tried(out=b"{}", case=replace(CASE, args=("analyze", "d", "--json"))), "json"),
        (tried(out=DONE, case=replace(CASE, says="thrice")), "words"),
        (tried(out=DONE, case=replace(CASE, unsaid="Wrote")), "words"),
        (
            tried(out=DONE, before={"k.jsonl": "a"}, after={"k.jsonl": "a"}, case=replace(CASE, renewed=("k.jsonl",))),
            "stale",
        ),
    ],
)
def test_the_judge_sees_what_is_wrong(seen: Tried, what: str) -> None:
    assert [fault.split(":")[0] for fault in wrong(seen)] == [what]


@pytest.mark.parametrize(
    ("name", "content"),
    {
        "k.jsonl": b'{"a": NaN}\n',
        "l.jsonl": b'{"a": 1, "a": 2}\n',
        "m.jsonl": b'{"a": 1}\n{"a"',
        "k.jsonl.gz": b"\x1f\x8b",
        "k.parquet": b"PAR1",
        "r.json": b"{}",
        "r.html": b"<html>",
        "r.csv": b"a,b\n1\n",
        "p.svg": b"<svg>",
        "p.png": b"\x89PNG",
        "r.tb/events.out.tfevents.1": b"\x09\0\0\0\0\0\0\0",
        "k/other": b"",
    }.items(),
)
def test_what_is_not_whole_is_seen(name: str, content: bytes, tmp_path: Path) -> None:
    written(name, content)(tmp_path)
    assert readable.fault(tmp_path / name.split("/")[0])


@pytest.mark.full
def test_the_server_runs_what_the_console_script_runs(server: Server) -> None:
    with workplaces() as folder:
        here = [
            try_case(replace(CASE, args=("explain", "kl"), outputs=()).within(fresh=fresh), server, folder / str(fresh))
            for fresh in (False, True)
        ]
    assert [wrong(tried) for tried in here] == [[], []]
    assert here[0].out == here[1].out
    assert b"kl" in (here[0].out or b"")
