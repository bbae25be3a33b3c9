"""`compare --objective`: each plan's numbers are those of an `analyze` of it."""

import pytest
from running import BF16, STEPS, refused, run

PLANS = ("token_is", "seq_is", "geo_rs", "slime_mis", "disabled")
NO_ADVANTAGES = BF16.replace("bf16", "fp32")


@pytest.mark.parametrize(
    "options", [("ppo",), ("gspo", "--loss-agg", "seq-mean-token-sum"), ("auto", "--dual-clip", "3")]
)
def test_each_plan_has_the_numbers_of_its_own_analysis(options: tuple[str, ...]) -> None:
    objective = ("--objective", *options)
    presets = [text for name in PLANS for text in ("--preset", name)]
    plans = run("compare", STEPS, *presets, *objective, "--json").json["plans"]
    for name, plan in zip(PLANS, plans, strict=True):
        alone = run("analyze", STEPS, "--preset", name, *objective, "--json").json["objective"]
        assert plan["objective"]["settings"] == alone["settings"]
        assert plan["objective"]["metrics"] == pytest.approx(alone["metrics"], rel=1e-9, abs=1e-15), name
        assert [batch["divisor"] for batch in plan["objective"]["batches"]] == [
            batch["divisor"] for batch in alone["batches"]
        ]


def test_the_terminal_has_a_line_for_each_plan() -> None:
    ran = run("compare", BF16, "--preset", "token_is", "--preset", "geo_rs", "--objective", "ppo")
    assert ran.status == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "eff seqs" in ran.out
    assert sum(" ppo " in line for line in ran.out.splitlines()) == 2


def test_an_objective_needs_advantages() -> None:
    refused(run("compare", NO_ADVANTAGES, "--objective", "ppo"), 3, "advantages")
