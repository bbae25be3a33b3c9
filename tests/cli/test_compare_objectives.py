"""`compare --objective`: each plan's numbers are those of an `analyze` of it."""

from pathlib import Path

import pytest
from running import BF16, STEPS, refused, run

PLANS = ("token_is", "seq_is", "geo_rs", "slime_mis", "disabled")
NO_ADVANTAGES = BF16.replace("bf16", "fp32")


@pytest.mark.parametrize(
    "options", [("ppo",), ("gspo", "--loss-agg", "seq-mean-token-sum"), ("auto", "--clip-high", "0.28")]
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


def test_each_plan_has_the_numbers_of_a_group_in_its_own_analysis() -> None:
    given = (STEPS, "--group-by", "group_id", "--objective", "gspo")
    presets = [text for name in PLANS for text in ("--preset", name)]
    groups = run("compare", *given, *presets, "--json").json["groups"]
    for place, name in enumerate(PLANS):
        alone = run("analyze", *given, "--preset", name, "--json").json["groups"]
        for group, own in zip(groups, alone, strict=True):
            objective = group["plans"][place]["objective"]
            assert objective == pytest.approx(own["objective"], rel=1e-9, abs=1e-15), (name, own["key"])


def test_groups_show_each_plan_or_where_these_are_many_the_one_to_take(tmp_path: Path) -> None:
    given = ("compare", STEPS, "--group-by", "step", "--objective", "ppo")
    few = run(*given, "--preset", "token_is", "--preset", "geo_rs").out
    by_group = few.partition("step  plan")[2].partition("By group")[0]
    assert by_group.count("decoupled_token_is") == by_group.count("decoupled_geo_rs") == 5
    page = tmp_path / "c.csv"
    many = run(*given, "-o", str(page)).out.partition("step  plan")[2]
    assert [line.split()[:2] for line in many.splitlines()[1:6]] == [
        *(["0", "decoupled_token_is"], ["1", "decoupled_token_is"], ["2", "decoupled_token_is"]),
        *(["3", "decoupled_token_is"], ["4", "areal_ratio_token"]),
    ]
    assert "The best plan of each group is shown" in many
    assert sum("objective/ppo/loss" in line for line in page.read_text().splitlines()) == 17 * 6


def test_no_number_is_cut_where_names_are_long() -> None:
    ran = run("compare", STEPS, "--group-by", "step", "--group-by", "train_precision", "--objective", "ppo")
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "…" not in ran.out
    assert "Not shown at this width: clipped, to seq IS" in ran.out


def test_the_terminal_has_a_line_for_each_plan() -> None:
    ran = run("compare", BF16, "--preset", "token_is", "--preset", "geo_rs", "--objective", "ppo")
    assert ran.status == 0
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "eff seqs" in ran.out
    assert [line.split()[0] for line in ran.out.splitlines() if line.split()[1:2] == ["ppo"]] == [
        "decoupled_token_is",
        "decoupled_geo_rs",
    ]
    assert "  ppo in decoupled mode, clip 0.2 down and 0.2 up, token-mean over kept" in ran.out


def test_an_objective_needs_advantages() -> None:
    refused(run("compare", NO_ADVANTAGES, "--objective", "ppo"), 3, "advantages")
