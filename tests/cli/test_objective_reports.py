"""`analyze --objective`: losses and coefficients by training batch, in every form, and what is refused."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from running import BF16, SAMPLE, STEPS, Ran, analyzed, refused, run

from rlcorr_cli import analyze, choose_objective
from rlcorr_cli.errors import UsageError
from rlcorr_cli.metrics.objective import OBJECTIVE, full_names
from rlcorr_cli.plans.files import plan_to_toml
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.results.saved import read_report
from rlcorr_cli.show.numbers import number

# Together in one process of pytest, which computes what most of them look at once.
pytestmark = pytest.mark.xdist_group("objective_reports")
INT8 = str(SAMPLE / "smollm2_int8.parquet")
TOKEN_IS = (STEPS, "--preset", "token_is", "--objective", "auto")
BY_GROUP = (*TOKEN_IS, "--group-by", "group_id")


def objective(*args: str) -> Any:
    return analyzed(*args)["objective"]


@pytest.fixture(scope="module")
def of_steps() -> Any:
    """The objective that most tests here look at."""
    return objective(*TOKEN_IS)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ran]:
    """The same in r.md, r.html and r.json, and what was printed as JSON."""
    folder = tmp_path_factory.mktemp("written")
    outputs = [part for suffix in ("md", "html", "json") for part in ("-o", str(folder / f"r.{suffix}"))]
    return folder, run("analyze", *TOKEN_IS, *outputs, "--json")


@pytest.fixture(scope="module")
def in_words(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The groups as text, as Markdown and as a page."""
    folder = tmp_path_factory.mktemp("words")
    pages = [folder / "r.md", folder / "r.html"]
    ran = run("analyze", *BY_GROUP, *(part for page in pages for part in ("-o", str(page))))
    return {"": ran.out} | {page.suffix: page.read_text() for page in pages}


def assert_close(values: dict[str, Any], expected: dict[str, Any]) -> None:
    assert values == pytest.approx(expected, rel=1e-9, abs=1e-15)


def test_numbers_are_the_means_over_training_batches(of_steps: Any) -> None:
    made = of_steps
    assert [batch["batch"] for batch in made["batches"]] == [0, 1, 2, 3, 4]
    assert made["batch_by"] == "step"
    for name, value in made["metrics"].items():
        of_batches = [batch["metrics"][name] for batch in made["batches"]]
        assert value == pytest.approx(sum(of_batches) / 5, rel=1e-12, abs=1e-18)
    assert len({batch["metrics"]["loss"] for batch in made["batches"]}) == 5


def test_a_batch_is_what_a_dump_of_it_alone_is(of_steps: Any, tmp_path: Path) -> None:
    pl.read_parquet(STEPS).filter(pl.col("step") == 3).write_parquet(tmp_path / "3.parquet")
    alone = objective(str(tmp_path / "3.parquet"), *TOKEN_IS[1:])
    (batch,) = (batch for batch in of_steps["batches"] if batch["batch"] == 3)
    assert_close(alone["metrics"], batch["metrics"])


@pytest.mark.parametrize(
    "more", [("--batch-tokens", "700"), ("--group-by", "group_id"), ("--engine", "threads", "--workers", "1")]
)
def test_portions_and_groups_do_not_change_it(more: tuple[str, ...], of_steps: Any) -> None:
    assert_close(objective(*TOKEN_IS, *more)["metrics"], of_steps["metrics"])


def test_a_batch_may_span_files(tmp_path: Path) -> None:
    rows = pl.read_parquet(BF16)
    for part in range(3):
        rows[part::3].write_parquet(tmp_path / f"{part}.parquet")
    of_parts = objective(str(tmp_path), "--preset", "seq_is", "--objective", "ppo")
    assert len(of_parts["batches"]) == 1
    assert_close(of_parts["metrics"], objective(BF16, "--preset", "seq_is", "--objective", "ppo")["metrics"])


def test_batches_are_those_that_are_asked_for() -> None:
    assert len(objective(*TOKEN_IS, "--batch-by", "group_id")["batches"]) == 8
    whole = objective(*TOKEN_IS, "--batch-by", "none")
    assert (len(whole["batches"]), whole["batch_by"]) == (1, None)


def test_weights_of_batch_mean_1_scale_it() -> None:
    weights = (BF16, "--is", "token:,2", "--objective", "ppo")
    plain, normed = analyzed(*weights), analyzed(*weights, "--normalize", "batch")
    factor = normed["metrics"]["rollout_is_batch_norm_factor"]
    for name, power in (("loss", 1), ("coef_abs_sum", 1), ("coef_square_sum", 2), ("cos_to_none", 0)):
        before, after = (report["objective"]["metrics"][name] for report in (plain, normed))
        assert after == pytest.approx(before / factor**power, rel=1e-12), name
    before, after = ({m["name"]: m for m in report["objective"]["mistakes"]} for report in (plain, normed))
    assert after["uncorrected"]["loss"] == before["uncorrected"]["loss"]
    assert after["uncorrected"]["size"] == pytest.approx(before["uncorrected"]["size"] * factor)
    assert after["average"]["size"] == pytest.approx(before["average"]["size"])


def test_no_correction_is_a_mistake_of_a_plan_that_corrects() -> None:
    def mistakes(*args: str) -> list[str]:
        return [mistake["name"] for mistake in objective(BF16, "--objective", "auto", *args)["mistakes"]]

    assert mistakes() == ["average"]
    assert mistakes("--preset", "geo_rs") == ["uncorrected", "average"]
    assert mistakes("--preset", "token_is") == ["uncorrected", "twice", "average"]


def test_the_loss_without_correction_is_that_of_no_plan() -> None:
    alone = objective(BF16, "--objective", "ppo")
    (mistake, *_) = objective(BF16, "--preset", "geo_rs", "--objective", "ppo")["mistakes"]
    assert mistake["loss"] == pytest.approx(alone["metrics"]["loss"], rel=1e-12)


@pytest.mark.parametrize("aggregations", [("token-mean", "seq-mean-token-mean"), ("seq-mean-token-mean", "token-mean")])
def test_the_other_average_is_that_of_the_other_aggregation(aggregations: tuple[str, str]) -> None:
    one, other = (objective(BF16, "--preset", "seq_is_rs", "--loss-agg", name) for name in aggregations)
    mistake = one["mistakes"][-1]
    assert mistake["name"] == "average"
    assert mistake["loss"] == pytest.approx(other["metrics"]["loss"], rel=1e-9)
    squares = other["metrics"]["coef_square_sum"] / one["metrics"]["coef_square_sum"]
    assert mistake["size"] == pytest.approx(squares**0.5, rel=1e-9)


def of_group(*args: str) -> list[dict[str, float]]:
    """The numbers of each group."""
    return [group["objective"] for group in analyzed(*args)["groups"]]


def test_a_group_that_is_a_batch_has_the_batchs_numbers() -> None:
    report = analyzed(*TOKEN_IS, "--group-by", "step")
    assert len(report["groups"]) == 5
    for group, batch in zip(report["groups"], report["objective"]["batches"], strict=True):
        assert_close(group["objective"], full_names(batch["metrics"], "ppo"))


@pytest.mark.parametrize("weights", ["seq_is_rs", "token_is"])
def test_a_groups_numbers_are_of_its_rows_alone(weights: str, tmp_path: Path) -> None:
    block = {"name": "ppo", "denominator": "all"}
    options = ("--plan", plan_with_objective(tmp_path / "plan.toml", weights, block))
    pl.read_parquet(STEPS).filter(pl.col("group_id") == "g3").write_parquet(tmp_path / "g3.parquet")
    alone = objective(str(tmp_path / "g3.parquet"), *options)["metrics"]
    assert_close(of_group(STEPS, *options, "--group-by", "group_id")[3], full_names(alone, "ppo"))


def test_groups_of_batches_with_a_mean_of_1_are_divided_by_their_batchs() -> None:
    options = (STEPS, "--is", "token:,2", "--normalize", "batch", "--objective", "ppo")
    report = analyzed(*options, "--group-by", "step")
    for group, batch in zip(report["groups"], report["objective"]["batches"], strict=True):
        assert_close(group["objective"], full_names(batch["metrics"], "ppo"))


def test_groups_have_their_numbers_in_every_table_and_when_saved(tmp_path: Path) -> None:
    table, saved, board, totals = (tmp_path / name for name in ("r.csv", "r.json", "r.tb", "r.rlcorr"))
    outputs = [arg for path in (table, saved, board, totals) for arg in ("-o", str(path))]
    report = analyzed(*TOKEN_IS, "--group-by", "step", *outputs)
    rows = pl.read_csv(table).filter(pl.col("metric") == "objective/ppo/loss")
    assert rows["value"].to_list() == [
        report["objective"]["metrics"]["loss"],
        *(group["objective"]["objective/ppo/loss"] for group in report["groups"]),
    ]
    assert next(board.iterdir()).read_bytes().count(b"rlcorr/objective/ppo/loss") == 5
    for path in (saved, totals):
        groups = read_report(str(path)).groups
        assert [dict(group.objective) for group in groups] == [group["objective"] for group in report["groups"]]


def test_rules_are_on_the_numbers_of_an_objective(tmp_path: Path) -> None:
    rule = ("--max", "objective/ppo/loss=-0.1", "--group-by", "step", "--json")
    ran = run("check", *TOKEN_IS, *rule)
    findings = [each for each in json.loads(ran.out)["findings"] if each["metric"] == "objective/ppo/loss"]
    assert ran.status == 1
    assert [each["status"] for each in findings] == ["fail"] * 5 + ["ok"]
    saved = str(tmp_path / "r.json")
    assert run("analyze", *TOKEN_IS, "--group-by", "step", "-o", saved).status == 0
    assert json.loads(run("check", saved, *rule[:2], "--json").out)["findings"][-6:] == findings
    refused(run("check", saved, "--objective", "ppo"), 2, "--objective needs the dump")
    for named in ((), ("--objective", "gspo")):
        refused(run("check", STEPS, *rule[:2], *named), 2, "It comes with its objective: --objective ppo")
    refused(run("check", STEPS, "--max", "clip_fraction=1"), 2, "--max objective/ppo/clip_fraction=")
    assert "Unit: advantage" in run("explain", "objective/ppo/loss").out


def test_a_knob_alone_asks_for_the_plans_own_objective() -> None:
    assert objective(BF16, "--clip-high", "0.28")["settings"]["name"] == "ppo"
    assert analyzed(BF16)["objective"] is None


def test_the_text_shows_it_with_what_mistakes_cost() -> None:
    out = run("analyze", *TOKEN_IS).out
    for metric in OBJECTIVE:
        assert f"  {metric.name} " in out
    for words in (
        "none, as the plan says",
        "no correction",
        "correction applied twice",
        "sequence mean instead of token mean",
    ):
        assert words in out
    assert "means over 5 batches by step" in " ".join(out.split())
    assert "Without current_log_probs every ratio is 1" in out
    assert all(len(line) <= 80 for line in out.splitlines())


def test_groups_have_their_numbers_in_words(in_words: dict[str, str]) -> None:
    losses = [number(group["objective/ppo/loss"]) for group in of_group(*BY_GROUP)]
    assert len(set(losses)) == len(losses) == 8
    for suffix, text in in_words.items():
        assert "rows alone, as if they were the training batch" in " ".join(text.split()), suffix
        assert all(loss in text.replace("\\-", "-") for loss in losses), suffix


def test_groups_that_are_the_batches_are_shown_once() -> None:
    assert "rows alone" not in run("analyze", *TOKEN_IS, "--group-by", "step").out


def test_many_batches_are_shown_by_their_ends(tmp_path: Path) -> None:
    pl.read_parquet(BF16).with_row_index("update").write_parquet(tmp_path / "d.parquet")
    out = run("analyze", str(tmp_path / "d.parquet"), "--objective", "ppo", "--batch-by", "update").out
    assert "The first and the last of 64 batches are shown" in " ".join(out.split())


@pytest.mark.full
def test_every_form_has_it_and_a_saved_report_keeps_it(written: tuple[Path, Ran]) -> None:
    folder, ran = written
    for name in ("r.md", "r.html"):
        text = (folder / name).read_text()
        assert "correction applied twice" in text
        assert "Objective" in text
    saved = read_report(str(folder / "r.json")).objective
    assert saved is not None
    assert json.loads(json.dumps(saved.to_dict())) == ran.json["objective"]


def test_saved_totals_of_parts_merge_to_the_objective_of_all(of_steps: Any, tmp_path: Path) -> None:
    rows = pl.read_parquet(STEPS)
    for part in range(3):
        rows[part::3].write_parquet(tmp_path / f"{part}.parquet")
        saved = str(tmp_path / f"{part}.rlcorr")
        assert run("analyze", str(tmp_path / f"{part}.parquet"), *TOKEN_IS[1:], "-o", saved).status == 0
    merged = run("analyze", *(str(tmp_path / f"{part}.rlcorr") for part in (2, 0, 1)), "--json").json["objective"]
    assert_close(merged["metrics"], of_steps["metrics"])
    assert merged["settings"] == of_steps["settings"]
    other = run("analyze", str(tmp_path / "0.parquet"), *TOKEN_IS[1:], "--clip-high", "0.3", "-o", saved, "--overwrite")
    assert other.status == 0
    refused(run("analyze", str(tmp_path / "1.rlcorr"), saved), 2, "objective.clip_high is 0.3", " and 0.2 in ")


def test_what_cannot_be_is_refused() -> None:
    refused(
        run("analyze", INT8, "--objective", "ppo"), 3, "There is no column for advantages", "--map advantages=COLUMN"
    )
    norm = ("--loss-agg", "seq-mean-token-sum-norm")
    refused(run("analyze", BF16, *norm), 2, "divides by a constant", "loss_constant = 8192")
    refused(run("analyze", BF16, "--clip-low", "nan"), 2, "--clip-low should lie in [0, 1]")


def plan_with_objective(path: Path, name: str, block: dict[str, Any]) -> str:
    """A plan file of a preset, with an objective block."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in block.items()]
    path.write_text("\n".join([plan_to_toml(preset(name).plan), "[objective]", *lines, ""]))
    return str(path)


def test_the_block_of_a_plan_file_asks_for_an_objective(tmp_path: Path) -> None:
    norm = {"name": "cispo", "aggregation": "seq-mean-token-sum-norm", "loss_constant": 96}
    path = plan_with_objective(tmp_path / "plan.toml", "token_is", norm)
    chosen = choose_objective(
        preset="token_is", objective="cispo", loss_agg="seq-mean-token-sum-norm", loss_constant=96
    )
    by_block, by_choice = analyze(BF16, plan=path), analyze(BF16, preset="token_is", objective=chosen)
    assert by_block.objective is not None
    assert by_block.objective.objective == chosen
    assert by_block.objective == by_choice.objective
    clipped = objective(BF16, "--plan", path, "--clip-high", "0.3")["settings"]
    assert (clipped["name"], clipped["clip_high"], clipped["loss_constant"]) == ("cispo", 0.3, 96)


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        ({"name": "sft"}, ("objective.name must be one of auto, ppo", "'sft'")),
        ({"clip": 0.2}, ("objective.clip is no key of the block", "clip_low")),
        ({"dual_clip": "3"}, ("objective.dual_clip should be a number",)),
        ({"name": "gspo", "dual_clip": 3}, ("dual_clip is PPO's; gspo has none",)),
        ({"aggregation": "seq-mean-token-sum-norm"}, ("divides by a constant", "loss_constant = 8192")),
    ],
)
def test_a_block_that_cannot_be_is_refused(block: dict[str, Any], parts: tuple[str, ...], tmp_path: Path) -> None:
    path = plan_with_objective(tmp_path / "plan.toml", "token_is", block)
    refused(run("analyze", BF16, "--plan", path), 2, *parts)


def test_python_takes_a_name_or_an_objective() -> None:
    by_name = analyze(BF16, objective="cispo").objective
    chosen = choose_objective(objective="cispo", loss_agg="seq-mean-token-sum-norm", loss_constant=96)
    by_choice = analyze(BF16, objective=chosen).objective
    assert by_name is not None
    assert by_choice is not None
    assert by_choice.metrics["loss"] == pytest.approx(
        (by_name.metrics["loss"] or 0) * by_name.batches[0].divisor / by_choice.batches[0].divisor / 96
    )
    with pytest.raises(UsageError, match="clip_low should be a number"):
        choose_objective(objective="ppo", clip_low="0.2")
    with pytest.raises(UsageError, match="The objective is one of decoupled mode"):
        analyze(BF16, mode="bypass", objective=chosen)
    with pytest.raises(UsageError, match="objective must be one of auto, ppo"):
        analyze(BF16, objective="sft")


def test_commands_in_the_objectives_words_are_code_in_pages_and_markdown(written: tuple[Path, Ran]) -> None:
    page, markdown = ((written[0] / name).read_text() for name in ("r.html", "r.md"))
    assert "<code>rlcorr help objectives</code>" in page
    assert " `rlcorr help objectives` explains" in markdown
