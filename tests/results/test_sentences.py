"""The verdict's sentences beside the numbers that they are made from: none contradicts a rule that fails below it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from rlcorr_cli import analyze
from rlcorr_cli.causes.diagnosis import AnomalyFinding, CauseFinding, Impossible
from rlcorr_cli.causes.exact import TOO_LOW
from rlcorr_cli.plans.plan import Bounds, Plan, Weighting
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.story import DataFault, Story
from rlcorr_cli.show.words import verdict_sentences as words

STEPS = Path(__file__).parents[2] / "sample_data" / "smollm2_steps.parquet"
PLAIN = Plan("disabled")
TOKEN = preset("token_is").plan
SEQUENCE = Plan("sequence", Weighting("sequence", Bounds(None, 2.0)))
SEQUENCE_AND_REJECTION = preset("seq_is_rs").plan
CLOSE = {
    "k3_kl": 0.002,
    "kl": 0.001,
    "token_ess": 0.99,
    "seq_ess": 0.98,
    "chi2_token": 0.01,
    "prob_abs_diff_mean": 0.005,
}
APART = {**CLOSE, "k3_kl": 0.04, "prob_abs_diff_mean": 0.05}
SHIFTED = AnomalyFinding(name="shifted_columns", path="a.parquet", evidence="so", fix="Shift it.", n_files=1)
LATE = AnomalyFinding(name="steps_out_of_order", path="a.parquet", evidence="so", fix="Sort.", n_files=1)
TOGETHER, ON_AVERAGE = "All 5 steps together", "On average over all 5 steps"
CLOSE_TOGETHER, APART_TOGETHER = f"{ON_AVERAGE}: close (k3_kl below 0.01).", f"{TOGETHER}: apart (k3_kl 0.01 or more)."
NOT_OF_SEQUENCES = "Token-level importance weights are usable, sequence-level ones are not"
BOTH = "Token-level and sequence-level importance weights are both usable."
LOOK = "Find the cause of the gap; until then, use token weights (`--preset token_is`)."


@dataclass(frozen=True, kw_only=True)
class Case:
    values: Mapping[str, float | None]
    says: str
    plan: Plan = PLAIN
    n_sequences: int = 64
    anomalies: tuple[AnomalyFinding, ...] = ()
    impossible: Impossible | None = field(default=None)


CASES = {
    "sequence weights of mean 0.05, nearly all rejected": Case(
        values={**CLOSE, "seq_ess": 0.333, "rollout_is_mean": 0.0511, "kept_tokens": 15.0},
        plan=SEQUENCE_AND_REJECTION,
        says=f"{CLOSE_TOGETHER} {NOT_OF_SEQUENCES}. The rejections keep only 1.5% of the tokens.",
    ),
    "a ratio that cannot be 1": Case(
        values={**APART, "kl": 0.12, "seq_ess": 0.05},
        impossible=Impossible("ratio_mean", 0.87, (0.868, 0.872), TOO_LOW),
        says="No verdict until the mean ratio is explained: the numbers below are unreliable.",
    ),
    "another temperature": Case(
        values={**APART, "seq_ess": 0.002},
        says=f"{APART_TOGETHER} {NOT_OF_SEQUENCES} (seq_ess 0.00200). {LOOK}",
    ),
    "a last token that was not scored": Case(
        values=APART,
        says=f"{APART_TOGETHER} {BOTH} {LOOK}",
    ),
    "one sequence": Case(
        values={**CLOSE, "seq_ess": 1.0},
        n_sequences=1,
        says="Too few to tell: 1 sequence is measured, and a verdict needs 32.",
    ),
    "31 sequences": Case(
        values=CLOSE, n_sequences=31, says="Too few to tell: 31 sequences are measured, and a verdict needs 32."
    ),
    "a healthy engine": Case(
        values=CLOSE,
        says=f"{CLOSE_TOGETHER} {BOTH} "
        "A correction is hardly needed; token weights (`--preset token_is`) cost almost nothing.",
    ),
    "a healthy engine under a plan": Case(
        values=CLOSE,
        plan=TOKEN,
        says=f"{CLOSE_TOGETHER} {BOTH}",
    ),
    "sequences too unequal": Case(
        values={**CLOSE, "seq_ess": 0.002},
        says=f"{CLOSE_TOGETHER} {NOT_OF_SEQUENCES} (seq_ess 0.00200). Use token weights (`--preset token_is`).",
    ),
    "sequence weights with too heavy a tail": Case(
        values={**CLOSE, "pareto_k_seq": 0.727, "pareto_k_seq_limit": 0.6, "pareto_k_seq_se": 0.12},
        says=f"{CLOSE_TOGETHER} {NOT_OF_SEQUENCES} (pareto_k_seq 0.727). Use token weights (`--preset token_is`).",
    ),
    "a tail that may be too heavy": Case(
        values={**CLOSE, "seq_ess": 0.6, "pareto_k_seq": 0.727, "pareto_k_seq_limit": 0.6, "pareto_k_seq_se": 0.13},
        says=f"{CLOSE_TOGETHER} Token-level importance weights are usable; 8 prompts are too few to tell if "
        "sequence-level ones are. Use token weights (`--preset token_is`).",
    ),
    "equal columns": Case(
        values={**CLOSE, "logprob_abs_diff_max": 0.0, "k3_kl": 0.0},
        n_sequences=2,
        says="Equal on every token: the two columns hold the same numbers, so there is nothing to correct.",
    ),
    "rounding": Case(
        values={**CLOSE, "k3_kl": 9e-7}, says="The same policy, up to rounding: there is nothing to correct."
    ),
    "a k3 above its rule": Case(
        values={**APART, "k3_kl": 0.2},
        says=f"{TOGETHER}: far apart. Importance weights cannot repair this: find the cause before you train "
        "on this data.",
    ),
    "a kl below its rule": Case(
        values={**APART, "kl": -0.2},
        says=f"{TOGETHER}: far apart. Importance weights cannot repair this: find the cause before you train "
        "on this data.",
    ),
    "columns that lie a token apart": Case(
        values={**APART, "k3_kl": 378.0, "chi2_token": 1e9},
        anomalies=(SHIFTED,),
        says="No verdict until shifted_columns is fixed: the numbers below are unreliable.",
    ),
    "two causes": Case(
        values=CLOSE,
        anomalies=(SHIFTED,),
        impossible=Impossible("ratio_mean", 0.87, (0.868, 0.872), TOO_LOW),
        says="No verdict until shifted_columns is fixed and the mean ratio explained: the numbers below are "
        "unreliable.",
    ),
    "files out of order": Case(
        values=CLOSE,
        plan=TOKEN,
        anomalies=(LATE,),
        says=f"{CLOSE_TOGETHER} {BOTH}",
    ),
    "token weights of too small a sample": Case(
        values={**CLOSE, "rollout_is_eff_sample_size": 0.2},
        plan=TOKEN,
        says=f"{CLOSE_TOGETHER} The importance weights of this plan are not usable.",
    ),
    "a veto that takes a fifth": Case(
        values={**CLOSE, "rollout_is_veto_fraction": 0.2, "kept_tokens": 800.0},
        plan=SEQUENCE_AND_REJECTION,
        says=f"{CLOSE_TOGETHER} {BOTH}",
    ),
    "nothing kept": Case(
        values={**CLOSE, "kept_tokens": 0.0},
        plan=SEQUENCE_AND_REJECTION,
        says=f"{CLOSE_TOGETHER} {BOTH} The rejections keep nothing.",
    ),
}


@pytest.fixture(scope="module")
def report() -> Report:
    made = analyze(STEPS)
    # No step refuses sequence weights, and prompts are alike, so that the numbers of the whole dump alone decide.
    assert made.clusters is not None
    alike = replace(made.clusters, overdispersion=1.0, mixed_seq_ess=0.98)
    groups = tuple(replace(g, values={**g.values, "seq_ess": 0.9}) for g in made.groups)
    return replace(made, clusters=alike, groups=groups)


@pytest.mark.parametrize("name", CASES)
def test_the_sentence_fits_the_numbers(name: str, report: Report) -> None:
    case = CASES[name]
    values = {"logprob_abs_diff_max": 0.5, **case.values}
    counts = {**report.whole.counts, "sequences": case.n_sequences, "tokens": 1000}
    changed = replace(
        report,
        plan=case.plan,
        whole=replace(report.whole, counts=counts, values=values),
        anomalies=case.anomalies,
        impossible=case.impossible,
        cause=None,
        story=Story(),
    )
    assert words(changed) == case.says


def named(cause: str, *, is_minor: bool = False) -> CauseFinding:
    return CauseFinding(cause=cause, share=0.7, is_minor=is_minor, headline="so", evidence=(), advice="Do so.")


def caused(report: Report, cause: CauseFinding, **values: float) -> str:
    """The verdict's words where a cause is named."""
    numbers = {"logprob_abs_diff_max": 0.5, **CLOSE, **values}
    story, whole = Story(first=cause.cause), replace(report.whole, values=numbers)
    return words(replace(report, plan=PLAIN, cause=cause, story=story, whole=whole))


def test_no_weights_are_advised_where_a_fault_is_named(report: Report) -> None:
    fix = "with a fault: temperature. Fix it before you train; importance weights would only hide it."
    assert caused(report, named("temperature")) == f"Close, but {fix}"
    assert caused(report, named("temperature"), k3_kl=0.04) == f"Apart, and {fix}"
    assert caused(report, named("temperature"), k3_kl=0.2) == f"Far apart, and {fix}"
    assert "with a fault" not in caused(report, named("temperature", is_minor=True), k3_kl=0.04)
    impossible = Impossible("ratio_mean", 0.87, (0.868, 0.872), TOO_LOW)
    assert caused(replace(report, impossible=impossible), named("temperature")) == (
        "No verdict until temperature is fixed and the mean ratio explained: the numbers below are unreliable."
    )


def test_a_fault_that_is_named_is_to_be_mended_however_few_the_sequences(report: Report) -> None:
    counts = {**report.whole.counts, "sequences": 24}
    few = replace(report, whole=replace(report.whole, counts=counts))
    said = caused(few, named("temperature"), k3_kl=0.04)
    assert said == (
        "Too few to tell: 24 sequences are measured, and a verdict needs 32. Fix temperature first in any case."
    )


def test_a_mean_ratio_that_the_named_cause_makes_need_not_be_explained(report: Report) -> None:
    low, high = (Impossible("ratio_mean", value, (value - 0.01, value + 0.01), "so") for value in (0.87, 1.13))
    void = replace(report, impossible=low)
    makes, unreliable = "No verdict: top_p makes the mean ratio impossible.", "the numbers below are unreliable."
    fix = "with a fault: top_p. Fix it before you train; importance weights would only hide it."
    assert caused(void, named("top_p")) == f"Close, but {fix}"
    of_little = Story(first="top_p", faults=(DataFault(name="top_p", certainty="proven", what="so", do="Do so."),))
    assert words(replace(void, plan=PLAIN, cause=None, story=of_little)) == f"{makes} Until it is fixed, {unreliable}"
    both = caused(replace(void, anomalies=(SHIFTED,)), named("top_p"))
    assert both == f"{makes} Until top_p and shifted_columns are fixed, {unreliable}"
    assert caused(replace(report, impossible=high), named("top_p")) == f"Close, but {fix}"
    padded = caused(replace(report, impossible=high), named("padded_vocabulary"))
    assert "is fixed and the mean ratio explained" in padded


def test_a_cause_that_is_named_need_not_be_looked_for(report: Report) -> None:
    weigh = "use token weights (`--preset token_is`)."
    assert caused(report, named("stale_policy"), k3_kl=0.04).endswith(f"Until the cause is fixed, {weigh}")
    assert caused(report, named("noise"), k3_kl=0.04).endswith(LOOK)
    far = "far apart. Importance weights cannot repair this: {} before you train on this data."
    assert caused(report, named("stale_policy"), k3_kl=0.2).endswith(far.format("fix the cause (stale_policy)"))
    assert caused(report, named("noise"), k3_kl=0.2).endswith(far.format("find the cause"))
