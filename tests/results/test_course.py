"""The course over steps: rises and their edges, steps that break rules, what is blank, and what stands for it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from rlcorr_cli.causes.steps import StepLevel
from rlcorr_cli.causes.wording import levels_named, steps_named
from rlcorr_cli.results.course import AtStep, Course, Rise, course, is_judged, neighbours, reliable
from rlcorr_cli.results.rules import RULES
from rlcorr_cli.show.words import rise_sentence, steps_that_break
from rlcorr_cli.totals.row_keys import DistinctKeys
from rlcorr_cli.totals.view import Value


@dataclass(frozen=True)
class Step:
    """A step of 64 sequences with some metrics."""

    key: Mapping[str, Any]
    values: Mapping[str, Value]
    counts: Mapping[str, int] = field(default_factory=lambda: {"sequences": 64, "tokens": 5_000})
    clusters: int | None = 20
    of_steps: tuple[int, ...] = ()

    @property
    def level(self) -> StepLevel | None:
        """20 clusters that know it to 5%."""
        k3 = self.values.get("k3_kl")
        return None if not k3 else StepLevel(clusters=20, mean_log=math.log(max(k3, 5e-7)), error=0.05)


def of(k3: list[float | None], first: object = 0) -> Course | None:
    places = [first, *range(1, len(k3))]
    steps = [Step({"step": place}, {"k3_kl": value}) for place, value in zip(places, k3, strict=True)]
    return course(steps, steps, RULES, known={"k3_kl": 0.1})


def rise(*k3: float | None, first: object = 0) -> Rise | None:
    of_steps = of(list(k3), first)
    assert of_steps is not None
    return of_steps.rise


def test_a_rise_holds_from_where_k3_stays_above_twice_its_first_value() -> None:
    def since(*k3: float) -> object:
        found = rise(*k3)
        return None if found is None else (found.since, round(found.factor, 6))

    assert since(0.01, 0.03, 0.025, 0.1) == (1, 10)
    assert since(0.01, 0.015, 0.025, 0.1) == (2, 10)
    assert since(0.01, 0.05, 0.02, 0.025) == (1, 2.5)
    assert since(0.01, 0.02, 0.02) == (1, 2)
    assert since(0.01, 0.015, 0.015) is None
    assert since(0.01, 0.03, 0.01) is None
    assert since(1e-8, 1e-6, 1e-6) is None
    assert since(1e-8, 1.1e-6, 1.1e-6) == (1, 110)


def test_what_is_flat_at_first_rises_from_where_it_leaves_that() -> None:
    flat = [0.001, 0.0011, 0.0009, 0.00105, 0.001, 0.00095, 0.001, 0.0011, 0.001]
    steady = rise(*flat, *(0.001 * 2 ** (n / 1.5) for n in range(1, 9)))
    assert steady is not None
    assert steady.flat == AtStep(8, 0.001)
    assert (steady.since, steady.factor) == (9, pytest.approx(2 ** (8 / 1.5)))
    assert steady.doubling == pytest.approx(1.5)  # of the rise alone
    jump = rise(*flat, 0.01, 0.011, 0.0105, 0.011)
    assert jump is not None
    assert (jump.flat, jump.since, jump.doubling) == (AtStep(8, 0.001), 9, None)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.2, 16))
    for from_the_start in (
        [0.001 * 1.4**n * float(noise[n]) for n in range(16)],
        [0.001 * (1 + n) for n in range(16)],
        [0.001, 0.002, 0.0005, *(0.001 * 1.5**n for n in range(1, 9))],
    ):
        found = rise(*from_the_start)
        assert found is not None
        assert found.flat is None
    growth = of([*flat, *(0.001 * 2**n for n in range(1, 7))])
    assert growth is not None
    said = "k3_kl stays near 0.00100 until step 8, then rises to 0.0640 at step 14 (64x, doubling every step)."
    assert rise_sentence(growth) == f"{said} At this rate it passes its limit of 0.1 in about 1 step."


def test_what_steps_have_too_few_of_is_said() -> None:
    def said(*sizes: tuple[int, int], together: tuple[int, ...] = ()) -> tuple[str, ...]:
        steps = [
            Step({"step": n}, {"k3_kl": 0.01}, {"sequences": 64, "tokens": tokens}, clusters)
            for n, (tokens, clusters) in enumerate(sizes)
        ]
        judged = [step for step in steps if is_judged(step)]
        if together:
            judged.append(Step({"step": f"{together[0]} to {together[-1]}"}, {}, of_steps=together))
        found = course(steps, judged, RULES, known={"k3_kl": 0.01}, unit="prompt")
        assert found is not None
        return found.small

    of_range = "rules judge neighbours together, until they have as many."
    assert said((5_000, 5), (5_000, 5)) == ()
    assert said((5_000, 4), (5_000, 4), together=(0, 1)) == (f"Both steps have fewer than 5 prompts: {of_range}",)
    assert said((900, 5), (800, 5), (5_000, 5), together=(0, 1)) == (
        f"2 of 3 steps have fewer than 1,000 tokens: {of_range}",
    )
    assert said((900, 4), (5_000, 5)) == ("1 of 2 steps has fewer than 1,000 tokens or 5 prompts: no rule judges it.",)


def test_without_an_order_or_all_values_there_is_no_rise() -> None:
    assert rise(0.01, 0.1) is None
    assert rise(0.01, None, 0.1) is None
    assert rise(0.0, 0.1, 0.1) is None
    for first in ("a", None, True, float("inf")):
        assert rise(0.01, 0.1, 0.1, first=first) is None
    assert of([0.01]) is None


def test_a_doubling_time_is_told_of_steady_growth_alone() -> None:
    doubled = rise(*(0.001 * 2 ** (i / 3) for i in range(12)))
    assert doubled is not None
    assert doubled.doubling == pytest.approx(3)
    for k3 in (
        [0.001 * (1 + i) for i in range(12)],  # by equal amounts
        [0.001] * 6 + [0.1] * 6,  # a jump
        [0.001, 0.01, 0.1, 1.0],  # too few steps
    ):
        found = rise(*k3)
        assert found is not None
        assert found.doubling is None


def test_steps_are_named_by_the_rules_that_they_break() -> None:
    found = of([0.01, 0.02, 0.2, 0.15])
    assert found is not None
    (broken,) = found.broken
    assert (broken.metric, broken.status, broken.worst_value, broken.of) == ("k3_kl", "fail", 0.2, 4)
    assert steps_that_break(found.broken, "step") == "Steps 2 and 3 are outside the limit on k3_kl."
    assert steps_named([3], "step") == "step 3"
    assert steps_named([3, 5, 9], "step") == "steps 3, 5 and 9"
    assert steps_named(range(90, 100), "step") == "steps 90 to 99"
    assert steps_named([1, 2, 3, 5, 8], "step") == "steps 1 to 3, 5 and 8"
    assert steps_named([1, 3, 5, 8, 9, 11], "step") == "6 steps from 1 to 11"
    assert steps_named([3, 7, 11], "step") == "steps 3, 7 and 11"
    assert steps_named(range(10, 100, 10), "step") == "steps 10 to 90 (10 apart)"
    assert steps_named(range(20, 100, 10), every=range(0, 100, 10)) == "steps 20 to 90"
    assert steps_named([0, 3, 4, 5, 8], every=[0, 3, 4, 5, 8, 9]) == "steps 0 to 8"
    assert steps_named(list("abcde"), "step") == "5 steps from a to e"


def test_levels_are_named_as_steps_are_without_the_noun() -> None:
    assert levels_named(["w3"]) == "w3"
    assert levels_named([3, 7]) == "3 and 7"
    assert levels_named([4, 5, 6, 9]) == "4, 5, 6 and 9"
    assert levels_named([4, 5, 6, 7, 9]) == "4 to 7 and 9"
    assert levels_named([2, 4, 6, 9, 13, 20]) == "6 from 2 to 20"
    assert levels_named([f"w{i}" for i in range(34)]) == "w0, w1, w2, w3 and 30 more"


@pytest.mark.parametrize(("n_tokens", "n_clusters", "judged"), [(1_000, 5, 1), (999, 5, 0), (1_000, 4, 0)])
def test_a_step_is_held_to_rules_from_1000_tokens_and_5_clusters_on(
    n_tokens: int, n_clusters: int, judged: int
) -> None:
    counts = {"sequences": 64, "tokens": n_tokens}
    steps = [Step({"step": i}, {"k3_kl": 0.5}, counts if i else {"sequences": 1, "tokens": 1}) for i in range(2)]
    steps[1] = Step(steps[1].key, steps[1].values, counts, n_clusters)
    found = course(steps, list(filter(is_judged, steps)), RULES, known={"k3_kl": 0.5})
    assert found is not None
    assert (found.judged, len(found.broken)) == (judged, judged)


def test_small_steps_are_together_until_they_are_enough() -> None:
    def ranges(*tokens: int, clusters: int = 3) -> list[tuple[int, ...]]:
        of_step = [DistinctKeys.of(np.arange(clusters * n, clusters * (n + 1), dtype=np.uint64), 21) for n in range(9)]
        steps = [Step({"step": n}, {}, {"sequences": 9, "tokens": of}, clusters) for n, of in enumerate(tokens)]
        return [tuple(places) for places in neighbours(steps, of_step[: len(steps)])]

    assert ranges(500, 500, 500, 499, 1) == [(0, 1), (2, 3, 4)]
    assert ranges(500, 499) == []
    assert ranges(5_000, 5_000, 5_000) == [(0, 1, 2)]  # 3 clusters are too few for a step alone, and go with others
    assert ranges(5_000, 900, 5_000, clusters=5) == []
    assert ranges(900, 900, 5_000, 900, 900, 900, clusters=5) == [(0, 1), (3, 4, 5)]
    same = DistinctKeys.of(np.arange(3, dtype=np.uint64), 21)
    steps = [Step({"step": n}, {}, clusters=3) for n in range(4)]
    assert neighbours(steps, [same] * 4) == []  # three prompts over and over are no more than three
    steps = [Step({"step": n}, {}, {"sequences": 2, "tokens": 900}, None) for n in range(4)]
    assert neighbours(steps, [None] * 4) == [range(4)]  # sequences count where clusters are not known


def test_chi_squared_of_under_10_effective_sequences_is_blank_and_seq_ess_is_not() -> None:
    known, blank = (Step({"step": 0}, {"seq_ess": ess, "chi2_seq": -0.3, "kl": 0.1}) for ess in (10 / 64, 9.9 / 64))
    assert [reliable(name, known) for name in ("seq_ess", "chi2_seq", "kl")] == [10 / 64, -0.3, 0.1]
    assert [reliable(name, blank) for name in ("seq_ess", "chi2_seq", "kl")] == [9.9 / 64, None, 0.1]
