"""Whole-file suspicions: each is raised by a dump made wrong in its way, and by no clean one."""

import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, strategies as st
from limits import LIMIT_SECONDS
from numpy.typing import NDArray

import rlcorr_cli
from rlcorr_cli.causes.anomalies import find_anomalies, signs
from rlcorr_cli.causes.table import ALL_CAUSES, ANOMALIES
from rlcorr_cli.reading.peek import Sample

DATA = Path(__file__).parents[2] / "sample_data"
GOLDEN = Path(__file__).parents[1] / "golden" / "input.parquet"
CLEAN = ("bf16", "fp32", "int8", "steps")
NAMES = ("rollout_log_probs", "old_log_probs")
NAN, INF = float("nan"), float("inf")

Column = list[NDArray[np.float64]]


@dataclass(frozen=True)
class Rows:
    """A dump's rows: b is the rollout column, a the training column."""

    b: Column
    a: Column
    mask: list[NDArray[np.bool_]] | None = None

    def each(self, change: Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[object, object]]) -> "Rows":
        """The rows after a change of (b, a), every token valid."""
        pairs = [change(b.copy(), a.copy()) for b, a in zip(self.b, self.a, strict=True)]
        return Rows([np.asarray(b, float) for b, _ in pairs], [np.asarray(a, float) for _, a in pairs])

    def only(self, rows: Sequence[int]) -> "Rows":
        mask = None if self.mask is None else [self.mask[i] for i in rows]
        return Rows([self.b[i] for i in rows], [self.a[i] for i in rows], mask)

    def sample(self, path: str = "dump.parquet", step: tuple[float | None, float | None] = (None, None)) -> Sample:
        def flat(rows: Sequence[NDArray[np.generic]], dtype: type) -> NDArray[np.generic]:
            return np.concatenate([np.empty(0, dtype), *rows]).astype(dtype)

        offsets = np.cumsum([0, *map(len, self.b)]).astype(np.int64)
        valid = None if self.mask is None else flat(self.mask, bool)
        rollout, train = flat(self.b, float), flat(self.a, float)
        return Sample(path=path, offsets=offsets, rollout=rollout, train=train, valid=valid, columns=NAMES, step=step)


def real(name: str) -> Rows:
    table = pq.read_table(GOLDEN if name == "golden" else DATA / f"smollm2_{name}.parquet")
    b, a, mask = (table[column].to_pylist() for column in (*NAMES, "response_mask"))
    return Rows([np.array(x, float) for x in b], [np.array(x, float) for x in a], [np.array(x, bool) for x in mask])


def found(*samples: Sample) -> dict[str, str]:
    """Suspicion -> evidence."""
    return {one.name: one.evidence for one in find_anomalies(map(signs, samples))}


BF16 = real("bf16")
"""64 rows of at most 96 tokens; 48 of them have 96."""


def drawn(seed: int, noise: float, temperature: float = 1.0, top_p: float = 1.0) -> Rows:
    """200 rows of 40 tokens, drawn from a rollout policy over 32 words, at that temperature and top_p.

    The training policy's scores are the rollout's and noise.
    """
    rows, tokens = 200, 40
    rng = np.random.default_rng(seed)
    scores = rng.exponential(12, (rows * tokens, 1)) * rng.standard_normal((rows * tokens, 32))
    rollout = _log_softmax(scores / temperature)
    if top_p < 1:
        best = np.sort(np.exp(rollout), 1)[:, ::-1]
        least = np.take_along_axis(best, (np.cumsum(best, 1) - best < top_p).sum(1)[:, None] - 1, 1)
        rollout = _log_softmax(np.where(np.exp(rollout) >= least, rollout, -1e9))
    train = _log_softmax(scores + noise * rng.standard_normal(scores.shape))
    picked = (rollout + rng.gumbel(size=rollout.shape)).argmax(1)[:, None]
    b, a = (np.take_along_axis(x, picked, 1)[:, 0].reshape(rows, tokens) for x in (rollout, train))
    return Rows(list(b), list(a))


def _log_softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    scores = scores - scores.max(1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(1, keepdims=True))


# ------------------------------------------------------------------------------------------------------ clean dumps


@pytest.mark.parametrize("name", [*CLEAN, "golden"])
def test_a_clean_dump_raises_no_suspicion(name: str) -> None:
    rows = real(name)
    rng = np.random.default_rng(0)
    for some in (range(len(rows.b)), range(8), [0], rng.permutation(len(rows.b)), rng.permutation(len(rows.b))[:8]):
        assert found(rows.only(list(some)).sample()) == {}


@pytest.mark.parametrize("noise", [0.0001, 0.01, 0.05, 0.25, 1.0])
def test_noise_of_any_size_raises_no_suspicion(noise: float) -> None:
    for seed in range(8):
        assert found(drawn(seed, noise).sample()) == {}


@pytest.mark.parametrize("temperature", [0.6, 0.7, 0.8, 1.44])
def test_another_temperature_raises_no_suspicion(temperature: float) -> None:
    """The slope of the columns comes near ln 2 or its inverse, but other_base wants a line, and through 0."""
    for seed in range(4):
        assert found(drawn(seed, 0.0, temperature=temperature).sample()) == {}


@pytest.mark.parametrize("top_p", [0.5, 0.9])
def test_the_exact_zeros_of_top_p_raise_no_suspicion(top_p: float) -> None:
    rows = drawn(0, 0.0, top_p=top_p)
    longest = max(len(run) for b in rows.b for run in "".join("0" if x == 0 else " " for x in b).split())
    assert longest >= 8, "no run to judge"
    assert found(rows.sample()) == {}


def test_zeros_that_both_columns_agree_on_raise_no_suspicion() -> None:
    """Probability 1 rounds to 0: a fifth of the tokens, and here a stretch of 20."""

    def sure(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
        b[::5] = 0.0
        a[::5] = -1e-7
        b[30:50], a[30:50] = 0.0, -0.0004
        return b, a

    assert found(BF16.each(sure).sample()) == {}


def test_a_stale_policy_that_is_surprised_now_and_then_is_no_unscored_column() -> None:
    def certain(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
        b[20:36], a[20:36] = 0.0, -0.001
        a[20:36:8] = -2.0
        return b, a

    full = [i for i, b in enumerate(BF16.b) if len(b) == 96]
    assert found(BF16.only(full).each(certain).sample()) == {}


def test_a_policy_that_repeats_itself_to_the_end_is_not_padded() -> None:
    """Rows cut at one length which loop: exact zeros at the end in both columns, but inside as well."""

    def loop(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
        for row in (b, a):
            row[40:] = 0.0
        b[[50, 64, 80]] = -1e-6
        return b, a

    full = [i for i, b in enumerate(BF16.b) if len(b) == 96]
    assert found(BF16.only(full).each(loop).sample()) == {}


def test_a_policy_that_learned_and_unlearned_its_own_samples_is_not_swapped() -> None:
    """Mean l > 0 and mean e^-l = 1 as for swapped columns, but rows differ by more than their tokens do."""
    made = [drawn(seed, 0.35) for seed in range(3)]
    rows = Rows([b for one in made for b in one.b], [a for one in made for a in one.a])
    learned = [a + 0.05 * (-1) ** i for i, a in enumerate(rows.a)]
    level = np.log(np.exp(np.concatenate(rows.b) - np.concatenate(learned)).mean())
    rows = replace(rows, a=[a + level for a in learned])
    log_ratio = np.concatenate(rows.a) - np.concatenate(rows.b)
    by_row = [(a - b).mean() for a, b in zip(rows.a, rows.b, strict=True)]
    assert log_ratio.mean() > 6 * np.std(by_row) / len(by_row) ** 0.5
    assert np.exp(-log_ratio).mean() == pytest.approx(1)
    assert found(rows.sample()) == {}


def test_a_policy_fitted_to_its_own_samples_is_not_swapped() -> None:
    """l rises on the tokens it was trained on, so mean l > 0 and mean e^l > 1 as for swapped columns."""
    for seed in range(4):
        for gain in (0.01, 0.05, 0.2):
            rows = drawn(seed, 0.25).each(lambda b, a, gain=gain: (b, a + gain * (1 - np.exp(a))))
            b, a = np.concatenate(rows.b), np.concatenate(rows.a)
            assert found(rows.sample()) == {}
    assert (a - b).mean() > 0.05


def test_unrelated_columns_are_not_shifted() -> None:
    """Of 40 pairs, one neighbour in fifty correlates above 0.5 by chance."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        assert found(Rows([-rng.exponential(1, 40)], [-rng.exponential(1, 40)]).sample()) == {}


def test_one_surprise_a_token_off_is_no_shift() -> None:
    def surprise(at: int) -> NDArray[np.float64]:
        row = np.full(100, -1e-6)
        row[at] = -5.0
        return row

    assert found(Rows([surprise(50)], [surprise(51)]).sample()) == {}


@pytest.mark.parametrize(("here", "before"), [(0.45, 0.55), (0.0, 0.4)])
def test_a_correlation_a_token_off_must_be_high_and_far_above_that_in_place(here: float, before: float) -> None:
    """Values that change slowly along a row correlate everywhere; a weak correlation may have many causes."""
    rng = np.random.default_rng(0)
    noise = rng.exponential(1, 5000)
    b = -noise if here == 0 else -np.convolve(noise, np.ones(8) / 8, "same")
    a = here * b + before * np.roll(b, 1) - (1 - here - before) * rng.exponential(2, 5000)
    assert found(Rows([b], [a]).sample()) == {}


@pytest.mark.parametrize("slope", [0.465, 0.65, 0.75, 1.3, 1.5, 2.15, 1.02])
def test_other_slopes_are_no_base(slope: float) -> None:
    assert found(BF16.each(lambda b, a: (b, slope * a)).sample()) == {}


@pytest.mark.parametrize("slope", [log(2), 0.75])
def test_a_base_is_a_line_through_zero(slope: float) -> None:
    """Another temperature's log Z may look like an offset: here either slope of the two is ln 2, but not both."""
    b = np.concatenate(BF16.b)
    offset = -0.5 if slope == log(2) else (log(2) - slope) * (b @ b) / b.sum()
    assert found(BF16.each(lambda b, a: (b, slope * a + offset)).sample()) == {}


def test_a_base_needs_more_than_a_few_tokens() -> None:
    assert found(Rows([BF16.b[0][:60]], [BF16.a[0][:60] / log(10)]).sample()) == {}
    assert set(found(Rows([BF16.b[0]], [BF16.a[0] / log(10)]).sample())) == {"other_base"}


def test_numbers_above_zero_that_leave_0_to_1_are_no_probabilities() -> None:
    assert found(BF16.each(lambda b, a: (b, -a)).sample()) == {}
    assert found(BF16.each(lambda b, a: (b, np.cos(a * 50) / 2 + 0.4)).sample()) == {}


def test_rows_of_their_own_lengths_were_not_padded() -> None:
    """Whatever they end with."""
    assert found(BF16.each(lambda b, a: (np.append(b, np.zeros(12)), np.append(a, np.zeros(12)))).sample()) == {}


# ---------------------------------------------------------------------------------------------------- broken dumps


def rolled(k: int) -> Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[object, object]]:
    return lambda b, a: (b, np.roll(a, k))


def padded(right: bool, pad: float) -> Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[object, object]]:
    def pad_row(row: NDArray[np.float64]) -> NDArray[np.float64]:
        fill = np.full(96 - len(row), pad)
        return np.concatenate([row, fill] if right else [fill, row])

    return lambda b, a: (pad_row(b), pad_row(a))


def prompted(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
    """A prompt before the response, which only the training policy scored."""
    return np.concatenate([np.zeros(20), b]), np.concatenate([np.resize(a[::-1], 20), a])


def prompted_in_both(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
    """A prompt before the response, which neither policy scored, as long as the response's length makes it."""
    n = 8 + len(b) % 13
    return np.concatenate([np.zeros(n), b]), np.concatenate([np.zeros(n), a])


def zeroed(column: int) -> Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[object, object]]:
    def change(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
        (b, a)[column][30:50] = 0.0
        return b, a

    return change


BROKEN: dict[str, tuple[str, Rows]] = {
    "copied": ("bypass_copy", BF16.each(lambda b, _: (b, b))),
    "later": ("shifted_columns", BF16.each(rolled(1))),
    "earlier": ("shifted_columns", BF16.each(rolled(-1))),
    "padded right": ("unmasked_padding", BF16.each(padded(True, 0.0))),
    "padded left": ("unmasked_padding", BF16.each(padded(False, 0.0))),
    "padded with 1": ("unmasked_padding", BF16.each(padded(True, 1.0))),
    "prompt": ("unmasked_prompt", BF16.each(prompted)),
    "prompt, both": ("unmasked_prompt", BF16.each(prompted_in_both)),
    "exp of one": ("probabilities", BF16.each(lambda b, a: (b, np.exp(a)))),
    "exp of the other": ("probabilities", BF16.each(lambda b, a: (np.exp(b), a))),
    "exp of both": ("probabilities", BF16.each(lambda b, a: (np.exp(b), np.exp(a)))),
    "rollout log10": ("other_base", BF16.each(lambda b, a: (b / log(10), a))),
    "train log10": ("other_base", BF16.each(lambda b, a: (b, a / log(10)))),
    "rollout log2": ("other_base", BF16.each(lambda b, a: (b / log(2), a))),
    "train log2": ("other_base", BF16.each(lambda b, a: (b, a / log(2)))),
    "swapped": ("swapped_columns", drawn(0, 0.25).each(lambda b, a: (a, b))),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_dump_broken_in_one_way_raises_that_suspicion_alone(broken: str) -> None:
    name, rows = BROKEN[broken]
    assert set(found(rows.sample())) == {name}


def test_every_suspicion_has_a_dump_that_raises_it() -> None:
    of_one_file = {name for name, _ in BROKEN.values()}
    exact = {"floor_value", "unscored_zeros", "repeated_values", "derived_values"}  # tests/cli/test_exact_facts.py
    assert {row.name for row in ANOMALIES} == of_one_file | exact | {"steps_out_of_order"}


def test_two_faults_raise_two_suspicions() -> None:
    """NeMo-RL's whole sequences without their mask: prompt, tool output and padding, none of it masked."""

    def whole(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
        b, a = (np.array(x) for x in prompted(*zeroed(0)(b, a)))
        return tuple(np.concatenate([x, np.zeros(116 - len(x))]) for x in (b, a))

    assert set(found(BF16.each(whole).sample())) == {"unmasked_padding", "unmasked_prompt"}


def test_probabilities_are_known_beside_unmasked_padding() -> None:
    def with_zeros(b: NDArray[np.float64], a: NDArray[np.float64]) -> tuple[object, object]:
        return tuple(np.concatenate([np.exp(x), np.zeros(300 - len(x))]) for x in (b, a))

    assert set(found(BF16.each(with_zeros).sample())) == {"probabilities", "unmasked_padding"}


STRETCHES = {
    "tool, rollout": BF16.each(zeroed(0)),
    "tool, train": BF16.each(zeroed(1)),
    "tool, golden": replace(real("golden"), mask=None),
    "prompts in few rows": Rows(BROKEN["prompt"][1].b[:20] + BF16.b[20:], BROKEN["prompt"][1].a[:20] + BF16.a[20:]),
}


@pytest.mark.parametrize("grid", [6, 1])
@pytest.mark.parametrize("stretches", STRETCHES)
def test_stretches_of_zeros_in_one_column_are_unscored_tokens(stretches: str, grid: int) -> None:
    """Also where sure tokens are rounded to 0."""
    columns = zip(("rollout_log_probs", "old_log_probs"), (STRETCHES[stretches].b, STRETCHES[stretches].a), strict=True)
    table = pa.table({name: [np.round(row, grid).tolist() for row in rows] for name, rows in columns})
    assert [each.name for each in rlcorr_cli.diagnose(table).anomalies] == ["unscored_zeros"]


@pytest.mark.parametrize("broken", ["padded right", "padded left", "prompt", "tool, rollout", "tool, train"])
def test_masked_fills_raise_no_suspicion(broken: str) -> None:
    rows = STRETCHES[broken] if broken in STRETCHES else BROKEN[broken][1]
    masks = [(b != 0) & (a != 0) for b, a in zip(rows.b, rows.a, strict=True)]
    assert found(replace(rows, mask=masks).sample()) == {}


def test_a_column_of_values_for_the_token_before_may_end_in_nan() -> None:
    shifted = BF16.each(lambda b, a: (b, np.append(a[1:], NAN)))
    assert set(found(shifted.sample())) == {"shifted_columns"}


def test_swapped_columns_of_real_data_show_where_there_are_enough() -> None:
    """int8 has 5,004 tokens and a mean log-ratio of 3.3 standard errors; four times the rows would make that 6.6."""
    swapped = real("int8").each(lambda b, a: (a, b))
    assert found(swapped.sample()) == {}
    assert set(found(Rows(4 * swapped.b, 4 * swapped.a).sample())) == {"swapped_columns"}


@pytest.mark.parametrize(
    "few", [Rows([x[:15]], [x[:15]]) for x in BF16.b[:1]] + [Rows([np.zeros(500)] * 2, [np.zeros(500)] * 2)]
)
def test_a_few_equal_tokens_or_zeros_are_no_copy(few: Rows) -> None:
    assert found(few.sample()) == {}


def test_evidence_is_a_sentence_with_numbers_and_the_dumps_own_names() -> None:
    for name, rows in BROKEN.values():
        sample = replace(rows.sample(), columns=("mu_logps", "pi_logps"))
        (one,) = find_anomalies([signs(sample)])
        assert one.name == name
        assert "mu_logps" in one.evidence or "pi_logps" in one.evidence
        assert any(letter.isdigit() for letter in one.evidence)
        assert "nan" not in one.evidence
        assert one.fix


def test_the_shifts_evidence_says_which_column_lies_how() -> None:
    assert (
        "old_log_probs lies one token later than rollout_log_probs"
        in found(BROKEN["later"][1].sample())["shifted_columns"]
    )
    assert "one token earlier" in found(BROKEN["earlier"][1].sample())["shifted_columns"]


def test_the_base_is_named_with_the_column_in_it() -> None:
    said = {
        broken: found(BROKEN[broken][1].sample())["other_base"]
        for broken in BROKEN
        if "log1" in broken or "log2" in broken
    }
    for broken, evidence in said.items():
        column = NAMES[0] if broken.startswith("rollout") else NAMES[1]
        assert f"as if {column} were in base {broken.split('log')[1]}" in evidence


# ------------------------------------------------------------------------------------------------------- many files


def test_one_finding_names_the_first_file_that_shows_it_and_counts_them_all() -> None:
    clean, bad = BF16.sample("a"), BROKEN["later"][1]
    (one,) = find_anomalies(map(signs, [clean, bad.sample("b"), clean, bad.sample("c")]))
    assert (one.name, one.path, one.n_files) == ("shifted_columns", "b", 2)


def at(*steps: tuple[float | None, float | None]) -> list[Sample]:
    return [BF16.only([0]).sample(f"file{i}", step) for i, step in enumerate(steps)]


def test_a_file_whose_steps_lie_before_those_of_the_file_before_is_out_of_order() -> None:
    (one,) = find_anomalies(map(signs, at((1, 1), (10, 10), (2, 2), (3, 3), (1, 2))))
    assert (one.name, one.path, one.n_files) == ("steps_out_of_order", "file2", 2)
    assert "step 2" in one.evidence
    assert "step 10 in file1" in one.evidence


@pytest.mark.parametrize(
    "steps",
    [
        [(0, 0), (0, 0), (1, 1)],  # two ranks of one step
        [(0, 5), (3, 8)],
        [(4, 9), (2, 5)],
        [(0, 5), (0, 5)],
        [(9, 4), (3, 1), (8, 2)],  # rows were shuffled
        [(3, 3), (None, None), (1, 1)],
        [(NAN, NAN), (1, 1), (INF, NAN)],
        [],
    ],
)
def test_steps_that_rise_or_overlap_or_are_not_there_raise_no_suspicion(
    steps: list[tuple[float | None, float | None]],
) -> None:
    assert find_anomalies(map(signs, at(*steps))) == ()


# ------------------------------------------------------------------------------------------------------ any numbers

ODD = st.sampled_from(
    [0.0, -0.0, NAN, INF, -INF, 1e308, -1e308, 5e-324, -1.0, -0.5, -9999.0, 1.0, 0.25, -1000.0, 1000.0]
)
ROWS = st.lists(
    st.lists(st.tuples(ODD, ODD, st.booleans()), max_size=12).flatmap(
        lambda row: st.integers(1, 12).map(lambda times: row * times)
    ),
    max_size=40,
)


@given(ROWS, st.booleans(), st.sampled_from(["float16", "float32", "float64"]))
@example([], False, "float32")
@example([[]], True, "float32")
@example([[(-1.0, -1.0, True)]], False, "float64")
@example([[(-1.0, -0.5, True)] * 100] * 30, False, "float64")
@example([[(1e308, -1e308, True)] * 100] * 30, False, "float64")
@example([[(-1000.0, -1.0, True), (-1.0, -1000.0, True)] * 10] * 30, False, "float64")
@example([[], [(0.0, -1.0, True)] * 100, []], False, "float64")
def test_no_numbers_make_it_fail_or_warn(rows: list[list[tuple[float, float, bool]]], masked: bool, dtype: str) -> None:
    b, a = ([np.array([token[k] for token in row], float) for row in rows] for k in (0, 1))
    made = Rows(b, a, [np.array([token[2] for token in row], bool) for row in rows] if masked else None).sample()
    with np.errstate(over="ignore"):
        made = replace(made, rollout=made.rollout.astype(dtype), train=made.train.astype(dtype))
    for one in find_anomalies(map(signs, [made, made])):
        assert "nan" not in one.evidence
        assert "inf" not in one.evidence


def test_the_table_loads_without_numpy() -> None:
    script = "import sys; from rlcorr_cli.causes.table import ANOMALIES; print(len(ANOMALIES), 'numpy' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
    )
    assert done.stdout.split() == [str(len(ANOMALIES)), "False"]


def test_every_row_says_what_it_means_and_what_to_do() -> None:
    for row in ANOMALIES:
        assert row.meaning.endswith(".")
        assert row.advice.endswith(".")
        assert row.source


def test_advice_names_options_as_both_the_command_line_and_python_have_them() -> None:
    """But within a whole command, which is one to paste."""
    advice = {row.name: re.sub(r"`rlcorr [^`]*`", "", row.advice) for row in ALL_CAUSES.values()}
    assert [name for name, text in advice.items() if "--" in text] == []
    assert "map old_log_probs=COLUMN" in advice["swapped_columns"]
