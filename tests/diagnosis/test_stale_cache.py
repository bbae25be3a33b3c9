"""A stale prefix cache: rows with cached tokens stand apart more and more as weights are updated; nothing else does."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from known_causes import DUMPS, VERDICTS

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding, Diagnosis
from tests.few import few

N_TOKENS, NOISE = 80, 0.06
Row = dict[str, Any]
Draw = np.random.Generator
ONE_MOMENT = ("step", "policy_version")


def hit_or_miss(row: Row, draw: Draw) -> int:
    """Half of the rows have a hit, of any share of their prompt."""
    return int(row["prompt_length"] * draw.uniform(0.2, 0.9)) // 16 * 16 if draw.random() < 0.5 else 0


def long_prompts(row: Row, draw: Draw) -> int:
    """Every long prompt is a hit, and no other."""
    return row["prompt_length"] - 16 if row["prompt_length"] > 450 else 0


def dump(
    size: Callable[[Row], float],
    *without: str,
    cached: Callable[[Row, Draw], int] = hit_or_miss,
    steps: int = 8,
    seed: int = 0,
) -> pa.Table:
    """Rows whose log-odds differ by noise of a size that depends on the row: four samples of each prompt, 64 rows
    or more, an update every second step."""
    draw, rows = np.random.default_rng(seed), list[Row]()
    for step, prompt in np.ndindex(steps, max(4, 16 // steps)):
        length = int(draw.integers(100, 900))
        for _ in range(4):
            row: Row = {
                "step": step,
                "policy_version": step // 2,
                "prompt_length": length,
                "group_id": f"{step}/{prompt}",
            }
            row["worker"] = f"w{draw.integers(4)}"
            row["cached_tokens"] = cached(row, draw)
            u = draw.normal(1.0, 2.0, N_TOKENS)
            v = u + draw.normal(0.0, NOISE * size(row), N_TOKENS)
            row |= {"rollout_log_probs": -np.logaddexp(0, -u), "old_log_probs": -np.logaddexp(0, -v)}
            rows.append({name: value for name, value in row.items() if name not in without})
    return pa.Table.from_pylist(rows)


def diagnosed(table: pa.Table) -> Diagnosis:
    return diagnose(table).whole.diagnosis


def named(diagnosis: Diagnosis) -> list[str]:
    return [cause.cause for cause in diagnosis.causes]


def cause_of(table: pa.Table) -> CauseFinding:
    diagnosis = diagnosed(table)
    assert diagnosis.cause is not None, diagnosis.conclusion
    return diagnosis.cause


STALE: dict[str, tuple[Callable[[Row], float], tuple[str, ...]]] = {
    "with the step": (lambda row: 1 + 0.7 * row["step"], ()),
    "with the version": (lambda row: 1 + 1.5 * row["policy_version"], ("step",)),
    "lengths unknown": (lambda row: 1 + 0.7 * row["step"], ("prompt_length",)),
    "since the update": (lambda row: 1 + 3.0 * (row["step"] % 2), ()),
    "with the dose": (lambda row: 1 + 1.2 * row["step"] * row["cached_tokens"] / row["prompt_length"], ()),
}
"""How a gap of hits grows: its size, and columns that the dump lacks."""


@pytest.mark.parametrize(
    ("case", "seed"), few([(case, seed) for case in STALE for seed in range(4)], [(case, 0) for case in STALE])
)
def test_hits_that_are_farther_off_with_every_update_are_of_a_stale_cache(case: str, seed: int) -> None:
    size, without = STALE[case]
    cause = cause_of(dump(lambda row: size(row) if row["cached_tokens"] else 1, *without, seed=seed))
    assert (cause.cause, cause.parameters["column"]) == ("stale_cache", "cached_tokens")
    along = "number of steps since the last update" if case == "since the update" else ""
    assert f"From the lowest to the highest {along}" in cause.evidence[1]
    assert "reset_prefix_cache" in cause.advice


def test_one_update_is_enough() -> None:
    table = dump(lambda row: 1 + 3 * row["step"] * (row["cached_tokens"] > 0), steps=2)
    assert cause_of(table).cause == "stale_cache"


def test_null_is_no_hit() -> None:
    table = dump(lambda row: 1 + 0.7 * row["step"] * (row["cached_tokens"] > 0))
    cached = pa.array([value or None for value in table["cached_tokens"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("cached_tokens"), "cached_tokens", cached)
    assert cause_of(table).cause == "stale_cache"


@pytest.mark.parametrize("version", [1628299609.9441214, 19159576981.66722, 260021207786.39142])
def test_hits_of_the_middle_version_alone_are_read_whatever_numbers_versions_are(version: float) -> None:
    table = dump(lambda row: 1, "step", "group_id", cached=lambda row, draw: 64 * (row["policy_version"] == 1), steps=6)
    versions = pa.array([version * number for number in table["policy_version"].to_pylist()])
    table = table.set_column(table.schema.get_field_index("policy_version"), "policy_version", versions)
    assert "stale_cache" not in named(diagnosed(table))


@pytest.mark.parametrize("seed", range(4))
def test_hits_that_are_as_far_off_at_every_step_are_a_column(seed: int) -> None:
    cause = cause_of(dump(lambda row: 4 if row["cached_tokens"] else 1, seed=seed))
    assert (cause.cause, cause.parameters["column"]) == ("column", "cached_tokens")
    assert cause.token_share == pytest.approx(0.5, abs=0.15)  # all of the hits
    assert "prefix cache" in cause.advice


def test_a_dump_of_one_moment_needs_prompts_of_equal_length() -> None:
    size: Callable[[Row], float] = lambda row: 4 if row["cached_tokens"] else 1  # noqa: E731
    cause = cause_of(dump(size, *ONE_MOMENT))
    assert cause.cause == "stale_cache"
    assert "In a dump of one step" in cause.evidence[1]
    assert "stale_cache" not in named(diagnosed(dump(size, *ONE_MOMENT, "prompt_length")))


@pytest.mark.parametrize("without", [(), ("prompt_length",), ONE_MOMENT, (*ONE_MOMENT, "prompt_length")])
def test_hits_that_are_just_the_long_prompts_are_no_stale_cache(without: tuple[str, ...]) -> None:
    for seed in range(3):
        table = dump(lambda row: row["prompt_length"] / 150, *without, cached=long_prompts, seed=seed)
        assert "stale_cache" not in named(diagnosed(table))


@pytest.mark.parametrize("without", [(), ("prompt_length",), ONE_MOMENT])
def test_prompts_that_differ_in_noise_are_no_stale_cache(without: tuple[str, ...]) -> None:
    for seed in (0, 10, 19, 20):  # of which each but the first one once was called so
        table = dump(
            lambda row: np.exp(1.5 * np.sin(row["prompt_length"])),
            *without,
            cached=lambda row, draw: 64 * (row["prompt_length"] % 2),
            seed=seed,
        )
        assert "stale_cache" not in named(diagnosed(table))


OTHERS: dict[str, tuple[Callable[[Row], float], Callable[[Row, Draw], int], str]] = {
    "staleness": (lambda row: 1 + 0.7 * row["step"], lambda row, draw: 64 * (draw.random() < row["step"] / 8), "lag"),
    "a worker": (
        lambda row: 5 if row["worker"] == "w3" else 1,
        lambda row, draw: 64 * (row["worker"] == "w3"),
        "worker",
    ),
    "a worker that gets worse": (
        lambda row: 1 + row["step"] * (row["worker"] == "w3"),
        lambda row, draw: 64 * (row["worker"] == "w3" or draw.random() < 0.2),
        "worker",
    ),
}
"""Another cause that goes together with hits: its size, which rows are hits, and the column that is named."""


@pytest.mark.parametrize("case", OTHERS)
def test_another_column_that_goes_together_with_hits_is_named(case: str) -> None:
    size, cached, column = OTHERS[case]
    diagnosis = diagnosed(dump(size, cached=cached))
    assert "stale_cache" not in named(diagnosis)
    assert diagnosis.cause is not None
    assert diagnosis.cause.parameters["column"] == column


def test_rows_that_are_mispaired_do_not_hide_it() -> None:
    table = dump(lambda row: 1 + 0.7 * row["step"] * (row["cached_tokens"] > 0))
    other = table["old_log_probs"].to_pylist()
    for i in range(5, len(other), 20):
        other[i], other[i - 3] = other[i - 3], other[i]
    table = table.set_column(table.schema.get_field_index("old_log_probs"), "old_log_probs", pa.array(other))
    assert named(diagnosed(table))[:2] == ["mispaired_rows", "stale_cache"]


def test_an_update_that_comes_late_in_a_dump_is_enough() -> None:
    table = dump(lambda row: 1 + 1.2 * (row["step"] > 5) * (row["cached_tokens"] > 0))
    assert cause_of(table).cause == "stale_cache"


@pytest.mark.parametrize("seed", few(range(40), range(4)))
def test_cached_tokens_of_a_clean_dump_name_nothing(seed: int) -> None:
    assert set(named(diagnosed(dump(lambda row: 1, seed=seed)))) <= {"noise"}


@pytest.mark.parametrize("name", few(VERDICTS, ["noise_bf16_bf16", "stale_mixed_versions", "moe_flips_bf16"]))
def test_cached_tokens_at_random_take_no_other_cause(name: str) -> None:
    table, draw = pq.read_table(DUMPS / f"{name}.parquet"), np.random.default_rng(0)
    cached = pa.array(draw.integers(1, 900, len(table)) * (draw.random(len(table)) < 0.5))
    diagnosis = diagnosed(table.append_column("cached_tokens", cached))
    assert (diagnosis.verdict, "stale_cache" in named(diagnosis)) == (VERDICTS[name], False)
