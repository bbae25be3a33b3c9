"""Which plan `compare` recommends, by every step of the rule, and the sentences that say so."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rlcorr_cli.plans.plan import Bounds, Budget, Plan, Rejection, Weighting
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.results.recommend import Evidence, PlanValues, Recommendation, flags_of, recommend
from rlcorr_cli.results.story import Story
from rlcorr_cli.results.suggest import GeometricBounds
from rlcorr_cli.results.usable import Usable, usable_weights
from rlcorr_cli.totals.view import Value

NOTHING = Plan("disabled")
TOKEN = Plan("token", Weighting("token", Bounds(None, 2.0)))
ZEROED = Plan("zeroed", Weighting("token", Bounds(0.5, 2.0), "zero"))
SEQUENCE = Plan("sequence", Weighting("sequence", Bounds(None, 2.0)))
DROPPED = Plan("dropped", rejections=(Rejection("ratio", "token", Bounds(0.5, 2.0)),))
GEOMETRIC = Plan("geo_rs", rejections=(Rejection("ratio", "seq_mean", Bounds(0.999, 1.001)),))
BOTH = Plan("both", TOKEN.weighting, GEOMETRIC.rejections)

WEIGHT: dict[str, Value] = {"token_ess": 0.95, "token_tv": 0.02, "seq_tv": 0.2, "seq_ess": 0.5}
NEAR = {**WEIGHT, "seq_tv": 0.01}
OUTLIERS = {**WEIGHT, "token_ess": 0.5}
FAR = {**WEIGHT, "token_tv": 0.2}
MOVED = {**WEIGHT, "advantage_shift": 0.3, "advantage_shift_se": 0.01}


def of(plan: Plan, worth: float, *, info: float | None = None, is_named: bool = False, **values: Any) -> PlanValues:
    """A plan of a worth; its info is as much unless it says otherwise."""
    intervals = values.pop("intervals", {})
    columns = {"worth": worth, "info": worth if info is None else info, **values}
    return PlanValues(name=plan.name, plan=plan, values=columns, intervals=intervals, is_named=is_named)


def decided(
    *plans: PlanValues,
    metrics: Mapping[str, Value] = WEIGHT,
    n: int = 64,
    advantages_differ: bool = True,
    bounds: GeometricBounds | None = None,
) -> Recommendation:
    usable = usable_weights(metrics, n)
    evidence = Evidence(n_sequences=n, metrics=metrics, plans=plans, advantages_differ=advantages_differ, usable=usable)
    return recommend(evidence if bounds is None else replace(evidence, bounds={"decoupled": bounds}))


def reason(recommendation: Recommendation, code: str) -> str:
    """The sentence of a code; the option that it ends in follows."""
    (given,) = (each for each in recommendation.reasons if each.code == code)
    return f"{given.text} {given.option}".rstrip()


@pytest.mark.parametrize(
    ("metrics", "flags"),
    [
        ({}, ("weight",)),
        ({"seq_tv": 0.05}, ("weight",)),
        ({"seq_tv": 0.049}, ("near",)),
        ({"token_ess": 0.9}, ("weight",)),
        ({"token_ess": 0.899}, ("outliers",)),
        ({"token_ess": 0.899, "token_tv": 0.05}, ("far",)),
        ({"token_tv": 0.1}, ("weight",)),
        ({"token_tv": 0.101}, ("far",)),
        ({"token_ess": None}, ("outliers",)),
        ({"token_ess": None, "token_tv": 0.06}, ("far",)),
        ({"advantage_shift": 0.2, "advantage_shift_se": 0.01}, ("weight",)),
        ({"advantage_shift": 0.201, "advantage_shift_se": 0.01}, ("moved",)),
        ({"advantage_shift": -0.201, "advantage_shift_se": 0.01}, ("moved",)),
        ({"advantage_shift": 0.3, "advantage_shift_se": 0.1}, ("weight",)),
        ({"advantage_shift": 0.3, "advantage_shift_se": 0.099}, ("moved",)),
        ({"advantage_shift": None, "advantage_shift_se": None}, ("weight",)),
        ({"advantage_shift": 0.3, "advantage_shift_se": 0.01, "token_ess": 0.5}, ("moved", "outliers")),
        ({"advantage_shift": 0.3, "advantage_shift_se": 0.01, "token_tv": 0.2}, ("moved", "far")),
        ({"advantage_shift": 0.3, "advantage_shift_se": 0.01, "seq_tv": 0.01}, ("moved",)),
    ],
)
def test_flags_hold_up_to_their_edges_and_the_first_is_the_headline(
    metrics: dict[str, Value], flags: tuple[str, ...]
) -> None:
    assert flags_of(WEIGHT | metrics) == flags


def test_the_largest_worth_is_taken() -> None:
    chosen = decided(of(NOTHING, 0.8, info=1.0), of(TOKEN, 0.95), of(SEQUENCE, 0.7))
    assert (chosen.plan, chosen.ties) == ("token", ())
    assert chosen.headline == "Use token: it weights every token; 95.0% of the batch counts."


def test_of_plans_within_a_hundredth_the_fewest_records_win_then_the_order_of_the_list() -> None:
    assert decided(of(BOTH, 0.95), of(SEQUENCE, 0.941), of(TOKEN, 0.945)).plan == "sequence"
    both = decided(of(BOTH, 0.95), of(TOKEN, 0.945), of(SEQUENCE, 0.939))
    assert (both.plan, both.ties) == ("token", ("both",))


def test_a_tie_is_wider_where_policies_are_near() -> None:
    plans = of(BOTH, 0.99), of(TOKEN, 0.975)
    assert decided(*plans).plan == "both"
    assert decided(*plans, metrics=NEAR).plan == "token"
    assert decided(of(BOTH, 0.99), of(TOKEN, 0.969), metrics=NEAR).plan == "both"


def test_no_correction_is_the_last_of_those_that_tie_and_wins_alone() -> None:
    assert decided(of(NOTHING, 1.0), of(BOTH, 0.991)).plan == "both"
    alone = decided(of(NOTHING, 0.9, info=1.0), of(TOKEN, 0.8))
    assert alone.headline == "Use disabled: no other of these plans is better than correcting nothing."


def test_outliers_narrow_the_choice_to_plans_that_bound_tokens() -> None:
    plans = of(TOKEN, 0.95), of(SEQUENCE, 0.9), of(ZEROED, 0.85), of(DROPPED, 0.7, info=0.98), of(GEOMETRIC, 0.8)
    assert decided(*plans).plan == "token"
    narrowed = decided(*plans, metrics=OUTLIERS)
    assert (narrowed.plan, narrowed.ties) == ("zeroed", ())
    assert narrowed.headline == (
        "Use zeroed: it weights every token, drops tokens outside its bounds; 85% of the batch counts."
    )
    assert decided(of(TOKEN, 0.95), of(DROPPED, 0.7), metrics=OUTLIERS).plan == "dropped"
    assert decided(*plans, metrics={**MOVED, "token_ess": 0.5}).plan == "zeroed"


def test_outliers_narrow_nothing_where_bounding_tokens_loses_half() -> None:
    assert decided(of(TOKEN, 0.95), of(ZEROED, 0.499), metrics=OUTLIERS).plan == "token"
    assert decided(of(TOKEN, 0.95), of(ZEROED, 0.5), metrics=OUTLIERS).plan == "zeroed"
    assert decided(of(TOKEN, 0.95), of(GEOMETRIC, 0.9), metrics=OUTLIERS).plan == "token"


def test_a_rejection_that_only_measures_is_no_record() -> None:
    measuring = Rejection("ratio", "token", Bounds(0.5, 2.0), applied=False)
    watched = Plan("watched", TOKEN.weighting, (measuring,))
    assert decided(of(watched, 0.95), of(SEQUENCE, 0.95)).plan == "watched"
    assert decided(of(ZEROED, 0.8), of(watched, 0.95), metrics=OUTLIERS).plan == "zeroed"


def test_a_budget_is_a_record() -> None:
    budgeted = PRESETS["m2po"].plan
    assert any(isinstance(rule, Budget) for rule in budgeted.rules)
    assert decided(of(NOTHING, 0.9), of(budgeted, 0.9)).plan == budgeted.name


@pytest.mark.parametrize(("n", "says"), [(31, "31 sequences are too few"), (1, "One sequence is too few")])
def test_few_sequences_cannot_tell(n: int, says: str) -> None:
    recommendation = decided(of(TOKEN, 0.95), n=n)
    assert (recommendation.plan, recommendation.ties) == (None, ())
    assert recommendation.headline.startswith(says)
    assert recommendation.headline.endswith("use at least 32, better several hundred.")
    assert decided(of(TOKEN, 0.95), n=32).plan == "token"


def test_no_plan_is_safe_where_all_are_worth_little() -> None:
    apart = {**WEIGHT, "seq_tv": 0.9}
    recommendation = decided(of(TOKEN, 0.29), of(NOTHING, 0.1, info=1.0), metrics=apart)
    assert recommendation.plan is None
    assert recommendation.headline == (
        "No plan is safe: the best is worth 29% of the batch. Fix the cause of the gap, or sample again "
        "with the current weights."
    )
    assert decided(of(TOKEN, 0.3), metrics=apart).plan == "token"


def test_plans_that_leave_too_little_of_near_policies_are_what_is_wrong() -> None:
    recommendation = decided(of(TOKEN, 0.29), metrics={**WEIGHT, "seq_tv": 0.18})
    assert recommendation.plan is None
    assert recommendation.headline == (
        "None of these plans helps: the best is worth 29% of the batch, and no correction at all is "
        "worth 82%. Compare others: without a preset or a plan, `compare` uses its own list."
    )


def test_far_policies_cannot_be_told_without_advantages_that_differ() -> None:
    recommendation = decided(of(TOKEN, 0.95), metrics=FAR, advantages_differ=False)
    assert recommendation.plan is None
    assert "(map advantages=COLUMN)" in recommendation.headline
    assert decided(of(TOKEN, 0.95), metrics=FAR).plan == "token"
    assert decided(of(TOKEN, 0.95), advantages_differ=False).plan == "token"


def test_every_flag_has_its_reason_in_their_order() -> None:
    both = decided(of(ZEROED, 0.9), metrics={**MOVED, "token_ess": 0.5})
    assert [each.code for each in both.reasons] == list(both.flags) == ["moved", "outliers"]
    assert reason(both, "moved").startswith(
        "The policies earn different rewards: training's earns 0.30 standard deviations of the advantages more."
    )
    few = "A few tokens carry the gap (token_ess 0.5): `rlcorr inspect DUMP --worst 5` shows them. Zero or drop them."
    assert reason(both, "outliers").startswith(few)
    less = decided(of(TOKEN, 0.9), metrics={**MOVED, "advantage_shift": -0.3})
    assert "0.30 standard deviations of the advantages less." in reason(less, "moved")


def test_the_numbers_of_a_gap_keep_off_0_and_100_percent() -> None:
    near = {**NEAR, "seq_tv": 2e-6, "token_tv": 0.0}
    recommendation = decided(of(TOKEN, 1 - 1e-9), metrics=near)
    assert reason(recommendation, "near").startswith(
        "The two policies differ by under 0.1% on whole sequences and by 0% on single tokens"
    )
    assert recommendation.headline.endswith("over 99.9% of the batch counts.")


def test_noise_is_named_with_what_weights_cost_in_case() -> None:
    assert reason(decided(of(TOKEN, 0.97)), "noise").endswith("these weights cost 3.0% of the batch in vain.")
    codes = {each.code for each in decided(of(DROPPED, 0.97)).reasons}
    assert codes == {"weight"}  # no weight of the mismatch, so nothing lost to noise
    assert "noise" not in {each.code for each in decided(of(TOKEN, 0.97), metrics=FAR).reasons}


@pytest.mark.parametrize(
    ("metrics", "advised"),
    [
        (MOVED, True),
        ({**MOVED, "token_tv": 0.2}, True),
        ({**MOVED, "seq_ess": 0.2}, True),
        ({**MOVED, "seq_ess": 0.1}, False),
        ({**MOVED, "seq_ess": None}, False),
        ({**MOVED, "token_ess": 0.5}, False),
        (WEIGHT, False),
    ],
)
def test_large_batches_of_moved_policies_may_weight_sequences(metrics: dict[str, Value], advised: bool) -> None:
    reasons = decided(of(ZEROED, 0.9), metrics=metrics).reasons
    assert [each.option for each in reasons if each.code == "sequence_weights"] == (
        ["--is sequence:,10"] if advised else []
    )


def test_the_plan_that_loses_most_is_named_with_bounds_that_keep_the_batch() -> None:
    plans = of(TOKEN, 0.95), of(SEQUENCE, 0.4), of(GEOMETRIC, 0.1)
    bounds = GeometricBounds(low=0.999998765, high=1.00000124, kept_fraction=0.953, exact=True)
    assert reason(decided(*plans, bounds=bounds), "loses") == (
        "Under geo_rs only 10% of the batch counts. To keep 95.3% of the sequences: --rs "
        "ratio.seq_mean:0.999998765,1.00000124"
    )
    assert reason(decided(*plans), "loses") == "Under geo_rs only 10% of the batch counts."
    assert reason(decided(*plans[:2], bounds=bounds), "loses") == "Under sequence only 40% of the batch counts."
    by_k1 = replace(GEOMETRIC, rejections=(Rejection("k1", "seq_mean", Bounds(-0.001, 0.001)),))
    assert "--rs ratio.seq_mean" in reason(decided(plans[0], of(by_k1, 0.1), bounds=bounds), "loses")
    # Bounds hold in the mode that they are of, and for a rejection of all sequences by the mismatch.
    gated = replace(by_k1, rejections=(Rejection("k1", "seq_mean", Bounds(None, 1e-4), gate="negative"),))
    for other in (replace(GEOMETRIC, mode="bypass"), gated):
        assert (
            reason(decided(plans[0], of(other, 0.1), bounds=bounds), "loses")
            == "Under geo_rs only 10% of the batch counts."
        )
    assert "loses" not in {each.code for each in decided(of(TOKEN, 0.95), of(SEQUENCE, 0.5)).reasons}


def test_a_plan_asked_for_by_name_is_named_before_one_that_loses_more() -> None:
    plans = of(TOKEN, 0.95), of(SEQUENCE, 0.4, is_named=True), of(GEOMETRIC, 0.1)
    assert reason(decided(*plans), "loses").startswith("Under sequence only")


def test_a_heavy_tail_is_told_of_a_plan_that_weights_at_its_scope() -> None:
    metrics = {**WEIGHT, "pareto_k_seq": 0.7312, "pareto_k_seq_limit": 0.4463, "pareto_k_seq_se": 0.0031}
    plans = of(TOKEN, 0.95), of(SEQUENCE, 0.84)
    assert reason(decided(*plans, metrics=metrics), "heavy_tail") == (
        "Under sequence a few sequences carry most of the weight (pareto_k_seq 0.73 is above 0.45): the batch is worth "
        "16% less."
    )
    close = {**metrics, "pareto_k_seq": 0.4495}
    assert reason(decided(*plans, metrics=close), "heavy_tail").find("(pareto_k_seq 0.450 is above 0.446)") > 0
    for harmless in ({**metrics, "pareto_k_seq": 0.449}, {**metrics, "pareto_k_seq": None}):
        assert "heavy_tail" not in {each.code for each in decided(*plans, metrics=harmless).reasons}
    assert "heavy_tail" not in {each.code for each in decided(plans[0], metrics=metrics).reasons}
    elsewhere = of(replace(SEQUENCE, mode="bypass"), 0.84)
    assert "heavy_tail" not in {each.code for each in decided(plans[0], elsewhere, metrics=metrics).reasons}
    token = {**WEIGHT, "pareto_k_token": 0.8, "pareto_k_token_limit": 0.7, "pareto_k_token_se": 0.05}
    assert reason(decided(*plans, metrics=token), "heavy_tail").endswith("the batch is worth 5.0% less.")


def test_a_rejection_that_prefers_advantages_or_lengths_is_told_beyond_three_errors() -> None:
    def said(**values: Any) -> list[str]:
        shares = {"kept": 0.6, "kept_sequence_fraction": 0.5, **values}
        recommendation = decided(of(TOKEN, 0.95), of(GEOMETRIC, 0.6, **shares))
        return [each.text for each in recommendation.reasons if each.code in ("shift", "length")]

    assert said(shift=0.46, shift_se=0.15) == ["geo_rs keeps sequences of higher advantage: +0.46 standard deviations."]
    assert said(shift=-0.46, shift_se=0.15) == ["geo_rs keeps sequences of lower advantage: -0.46 standard deviations."]
    assert said(shift=0.44, shift_se=0.15) == []
    assert said(shift=None, shift_se=None) == []
    assert said(length=1.31, intervals={"length": (1.21, 1.41)}) == [
        "geo_rs keeps longer sequences: 1.31 times the mean length."
    ]
    assert said(length=0.7, intervals={"length": (0.6, 0.79)}) == [
        "geo_rs keeps shorter sequences: 0.70 times the mean length."
    ]
    assert said(length=1.31, intervals={"length": (1.1, 1.52)}) == []
    assert said(length=1.31) == []
    assert said(shift=0.46, shift_se=0.15, kept_sequence_fraction=0.3) == []
    assert said(length=1.31, intervals={"length": (1.21, 1.41)}, kept=1.0) == []


def test_no_plan_is_named_where_the_data_are_not_what_they_are_taken_for() -> None:
    evidence = Evidence(
        n_sequences=64,
        metrics=WEIGHT,
        plans=(of(TOKEN, 0.95),),
        advantages_differ=True,
        usable=Usable(token="no", sequence="no"),
        story=Story(first="swapped_columns", effect="fault", headline="The columns are swapped."),
    )
    recommendation = recommend(evidence)
    assert recommendation.plan is None
    assert recommendation.headline == "The columns are swapped. Fix this first: no plan can be named before."
    assert recommendation.reasons == ()


def test_a_plan_is_the_least_harmful_one_where_the_gap_has_a_fault() -> None:
    evidence = Evidence(
        n_sequences=64,
        metrics=WEIGHT,
        plans=(of(TOKEN, 0.95),),
        advantages_differ=True,
        usable=Usable(token="yes", sequence="yes"),
        story=Story(first="top_p", effect="fault", headline="Cause: one side was logged after top-p 0.9."),
    )
    recommendation = recommend(evidence)
    assert recommendation.plan == of(TOKEN, 0.95).name
    assert recommendation.headline == (
        f"Cause: one side was logged after top-p 0.9. Fix this first. Least harmful meanwhile: {recommendation.plan}."
    )


def test_no_reason_contradicts_the_cause_that_is_named() -> None:
    metrics = {**MOVED, "token_ess": 0.5}
    plans = of(ZEROED, 0.9), of(GEOMETRIC, 0.1)
    evidence = Evidence(
        n_sequences=64,
        metrics=metrics,
        plans=plans,
        advantages_differ=True,
        usable=usable_weights(metrics, 64),
        bounds={"decoupled": GeometricBounds(low=0.9, high=1.1, kept_fraction=0.95)},
    )
    fault = Story(first="repetition_penalty", effect="fault", headline="Likely cause: a penalty.")
    of_fault = recommend(replace(evidence, story=fault))
    assert [each.code for each in of_fault.reasons] == ["moved", "outliers"]
    assert [each.option for each in of_fault.reasons] == ["", ""]
    told = " ".join(each.text for each in of_fault.reasons)
    assert all(words not in told for words in ("staleness", "least bad", "drop"))
    quantised = recommend(replace(evidence, story=Story(first="other_weights", effect="warning")))
    assert "Fix the cause (other_weights). Least harmful meanwhile:" in quantised.headline
    assert "staleness" not in reason(quantised, "moved")
    stale = recommend(replace(evidence, story=Story(first="stale_policy", effect="warning")))
    assert "Shorten the lag. Least harmful meanwhile:" in stale.headline
    assert "That is staleness" in reason(stale, "moved")


def test_a_plan_of_which_nothing_counts_and_a_tail_that_costs_nothing_are_said_so() -> None:
    assert reason(decided(of(TOKEN, 0.95), of(GEOMETRIC, 0.0)), "loses") == "Under geo_rs nothing of the batch counts."
    metrics = {**WEIGHT, "pareto_k_token": 0.95, "pareto_k_token_limit": 0.7, "pareto_k_token_se": 0.05}
    assert "heavy_tail" not in {each.code for each in decided(of(TOKEN, 0.995), metrics=metrics).reasons}


def test_advantages_of_zero_leave_nothing_to_weigh() -> None:
    nothing = [replace(of(plan, 0.0), values={"worth": None, "info": None}) for plan in (TOKEN, GEOMETRIC)]
    recommendation = decided(*nothing)
    assert recommendation.plan is None
    assert recommendation.headline.startswith("There is nothing to weigh")
    assert "loses" not in {each.code for each in recommendation.reasons}


def test_a_weighting_is_no_rejection_that_prefers() -> None:
    recommendation = decided(of(TOKEN, 0.95), of(SEQUENCE, 0.8, shift=0.9, shift_se=0.1))
    assert "shift" not in {each.code for each in recommendation.reasons}


def test_reasons_are_at_most_four() -> None:
    metrics = {**WEIGHT, "pareto_k_seq": 0.73, "pareto_k_seq_limit": 0.45, "pareto_k_seq_se": 0.2}
    shares = {"kept": 0.6, "kept_sequence_fraction": 0.5}
    plans = of(TOKEN, 0.95), of(SEQUENCE, 0.8), of(GEOMETRIC, 0.1, shift=0.9, shift_se=0.1, **shares)
    codes = [each.code for each in decided(*plans, metrics=metrics).reasons]
    assert codes == ["weight", "noise", "loses", "heavy_tail"]
    without_tail = [each.code for each in decided(*plans).reasons]
    assert without_tail == ["weight", "noise", "loses", "shift"]


def test_a_recommendation_is_json_of_plain_values() -> None:
    document = decided(of(TOKEN, 0.95), of(BOTH, 0.945)).to_dict()
    assert list(document) == ["plan", "headline", "flags", "usable", "ties", "reasons"]
    assert (document["plan"], document["flags"], document["ties"]) == ("token", ["weight"], ["both"])
    assert list(document["reasons"][0]) == ["code", "text", "option", "values"]
    assert document["reasons"][0]["values"] == {"seq_tv": 0.2, "token_tv": 0.02, "token_ess": 0.95}


def test_rounding_chooses_no_words() -> None:
    """Plans that leave the same are named in their order, and a share that is 1 but for rounding is all."""
    worse = of(GEOMETRIC, 0.1), of(SEQUENCE, 0.1 - 1e-16)
    assert worse[1].info < worse[0].info
    assert reason(decided(of(TOKEN, 0.95), *worse), "loses").startswith("Under geo_rs only")
    assert decided(of(TOKEN, 1 - 1e-15)).headline == decided(of(TOKEN, 1.0)).headline
