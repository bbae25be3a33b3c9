"""Kept sets of a truncated sampler in every form that dumps have, and the gap over them, by slow loops."""

import base64
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import KeptGap

Row = dict[str, Any]
VOCABULARY, TOP_P = 12, 0.9


def made(seed: int = 0) -> list[Row]:
    """Rows of tokens drawn from the top-p sets of a rollout; both columns are over the whole vocabulary.

    Beside what a dump has: `sets`, each token's ids, and `q`, `p`, both policies' log-probs of all tokens.
    """
    rng = np.random.default_rng(seed)
    rows: list[Row] = []
    for i in range(50):
        q = rng.dirichlet(np.full(VOCABULARY, 0.1), 25) + 1e-6
        q /= q.sum(-1, keepdims=True)
        p = q * np.exp(rng.normal(0, 0.2, q.shape))
        p /= p.sum(-1, keepdims=True)
        order = np.argsort(-q, -1)
        n_kept = [1 + int((np.cumsum(each[of]) < TOP_P).sum()) for each, of in zip(q, order, strict=True)]
        sets = [of[:n].tolist() for of, n in zip(order, n_kept, strict=True)]
        drawn = [int(rng.choice(ids, p=each[ids] / each[ids].sum())) for ids, each in zip(sets, q, strict=True)]
        logs = {name: np.log(each).astype(np.float32).astype(np.float64) for name, each in (("q", q), ("p", p))}
        rows.append(
            {
                "sample_id": f"s{i}",
                "rollout_log_probs": [float(logs["q"][t, v]) for t, v in enumerate(drawn)],
                "old_log_probs": [float(logs["p"][t, v]) for t, v in enumerate(drawn)],
                "sets": sets,
                **logs,
            }
        )
    return rows


ROWS = made()


def flat(lists: list[list[Any]]) -> list[Any]:
    return [each for one in lists for each in one]


def counts(row: Row) -> list[int]:
    return [*map(len, row["sets"])]


def offsets(row: Row) -> list[int]:
    return [0, *np.cumsum(counts(row)).tolist()]


def logps(row: Row, policy: str) -> list[list[float]]:
    """Of each token's kept ids."""
    return [[float(row[policy][t, v]) for v in ids] for t, ids in enumerate(row["sets"])]


def int32(values: list[int]) -> bytes:
    return np.array(values, "<i4").tobytes()


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode()


FORMS: dict[str, Callable[[Row], Row]] = {
    "sizes": lambda row: {"kept_set_size": counts(row)},
    "ids": lambda row: {"sampling_mask": row["sets"]},
    "prime-rl": lambda row: {"sampling_mask": {"ids": int32(flat(row["sets"])), "counts": int32(counts(row))}},
    "prime-rl lists": lambda row: {"sampling_mask": {"ids": flat(row["sets"]), "counts": counts(row)}},
    "prime-rl text": lambda row: {
        "sampling_mask": {"ids": base64_of(int32(flat(row["sets"]))), "counts": base64_of(int32(counts(row)))}
    },
    "vLLM": lambda row: {"sampling_mask": {"token_ids": flat(row["sets"]), "offsets": offsets(row)}},
    "miles": lambda row: {
        "rollout_sampling_mask_ids": flat(row["sets"]),
        "rollout_sampling_mask_offsets": offsets(row),
    },
}
BYTES = ("prime-rl",)
"""Forms that no JSON has."""


def dump(folder: Path, form: Callable[[Row], Row], kind: str = "parquet", rows: list[Row] = ROWS) -> Path:
    """The rows with what `form` makes of each; in 'odd lines' ids are lists, which a slower parser reads."""
    names = ("sample_id", "rollout_log_probs", "old_log_probs")
    written = [{name: row[name] for name in names} | form(row) for row in rows]
    path = folder / f"dump.{'parquet' if kind == 'parquet' else 'jsonl'}"
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(written), path)
    else:
        ids = [{"sample_id": [row["sample_id"]]} if kind == "odd lines" else {} for row in written]
        path.write_text("\n".join(json.dumps(row | own) for row, own in zip(written, ids, strict=True)))
    return path


def said(path: Path) -> str:
    facts = diagnose(path).diagnosis.facts
    return " ".join(fact.sentence for fact in facts if fact.name == "kept_sets")


def kept(path: Path) -> KeptGap | None:
    return diagnose(path).diagnosis.gap.kept


def over_sets(rows: list[Row] = ROWS) -> tuple[list[float], float, float]:
    """The log-ratio of every token over its kept set, and the mean probability in it of both policies."""
    ratios, of_q, of_p = list[float](), list[float](), list[float]()
    for row in rows:
        for t, ids in enumerate(row["sets"]):
            in_q, in_p = (sum(math.exp(row[name][t, v]) for v in ids) for name in ("q", "p"))
            a, b = row["old_log_probs"][t] - math.log(in_p), row["rollout_log_probs"][t] - math.log(in_q)
            ratios.append(a - b)
            of_q.append(in_q)
            of_p.append(in_p)
    return ratios, float(np.mean(of_q)), float(np.mean(of_p))


@pytest.mark.parametrize("kind", ["parquet", "lines", "odd lines"])
@pytest.mark.parametrize("form", FORMS)
def test_kept_sets_are_read_in_every_form(form: str, kind: str, tmp_path: Path) -> None:
    if form in BYTES and kind != "parquet":
        return
    singles = np.mean([n == 1 for row in ROWS for n in counts(row)])
    told = said(dump(tmp_path, FORMS[form], kind))
    assert told.startswith(f"{singles:.0%} of the tokens are the only one that their sampler kept")
    assert "neither column is over the kept sets" in told


def of_columns(row: Row) -> Row:
    return {"rollout_kept_log_probs": logps(row, "q"), "old_kept_log_probs": logps(row, "p")}


def of_heads(row: Row) -> Row:
    """All of the vocabulary but its last id, in an order of its own on each side."""
    found: Row = {}
    for side, policy in (("rollout", "q"), ("old", "p")):
        ids = np.argsort(-row[policy], -1)
        found[f"{side}_topk_token_ids"] = ids.tolist()
        found[f"{side}_topk_log_probs"] = np.take_along_axis(row[policy], ids, -1).tolist()
    return found


def of_object(row: Row) -> Row:
    values = np.array(flat(logps(row, "q")), "<f4").tobytes()
    mask = {"ids": int32(flat(row["sets"])), "counts": int32(counts(row)), "logprobs": values}
    return {"sampling_mask": mask, "old_kept_log_probs": flat(logps(row, "p"))}


@pytest.mark.parametrize("kind", ["parquet", "odd lines"])
@pytest.mark.parametrize("source", ["columns", "heads", "object", "flat beside offsets"])
def test_the_gap_over_the_kept_sets_is_that_of_both_log_probs_renormalised(
    source: str, kind: str, tmp_path: Path
) -> None:
    form: Callable[[Row], Row] = {
        "columns": lambda row: {**FORMS["ids"](row), **of_columns(row)},
        "heads": lambda row: {**FORMS["vLLM"](row), **of_heads(row)},
        "object": of_object,
        "flat beside offsets": lambda row: {
            **FORMS["miles"](row),
            "rollout_sampling_mask_log_probs": flat(logps(row, "q")),
            "train_kept_log_probs": flat(logps(row, "p")),
        },
    }[source]
    if source == "object" and kind != "parquet":
        return
    found, (ratios, of_q, of_p) = kept(dump(tmp_path, form, kind)), over_sets()
    assert found is not None
    assert found.tokens == len(ratios)
    assert found.k3 == pytest.approx(np.mean([math.expm1(ratio) - ratio for ratio in ratios]), rel=1e-6)
    assert found.sd == pytest.approx(np.std(ratios), rel=1e-6)
    assert (found.rollout_mass, found.train_mass) == pytest.approx((of_q, of_p), rel=1e-6)
    # Most of the difference of the columns is in the sets' masses here: it is not in the sampled tokens alone.
    assert f"renormalised over them, k3_kl is {found.k3:.2g} and the sd of log-ratio is {found.sd:.2g}" in said(
        dump(tmp_path, form, kind)
    )


def test_a_rollout_that_is_over_its_sets_needs_the_masses_of_training_alone(tmp_path: Path) -> None:
    def over(row: Row) -> Row:
        masses = [math.log(sum(math.exp(each) for each in one)) for one in logps(row, "q")]
        rollout = [min(0.0, b - mass) for b, mass in zip(row["rollout_log_probs"], masses, strict=True)]
        rollout = [0.0 if n == 1 else b for b, n in zip(rollout, counts(row), strict=True)]
        return {"rollout_log_probs": rollout, "sampling_mask": row["sets"], "old_kept_log_probs": logps(row, "p")}

    path, (ratios, _, of_p) = dump(tmp_path, over), over_sets()
    found = kept(path)
    assert found is not None
    assert (found.rollout_mass, found.train_mass) == (1.0, pytest.approx(of_p, rel=1e-6))
    assert found.k3 == pytest.approx(np.mean([math.expm1(ratio) - ratio for ratio in ratios]), rel=1e-5)
    assert "rollout_log_probs is over the kept sets and 0 there, old_log_probs is not" in said(path)
    assert "Subtract" not in said(path)


@pytest.mark.parametrize("part", ["rollout", "old", "ids"])
def test_without_the_log_probs_of_one_side_there_is_no_gap_over_the_sets(part: str, tmp_path: Path) -> None:
    def form(row: Row) -> Row:
        columns = {**FORMS["ids"](row), **(of_heads(row) if part == "ids" else of_columns(row))}
        gone = [name for name in columns if name.startswith("sampling_mask" if part == "ids" else f"{part}_kept")]
        return {name: value for name, value in columns.items() if name not in gone} | FORMS["sizes"](row)

    assert kept(dump(tmp_path, form)) is None
    assert "kept" not in diagnose(dump(tmp_path, form)).to_dict()["gap"]


def test_a_set_that_a_head_has_not_whole_is_left_out(tmp_path: Path) -> None:
    def short(row: Row) -> Row:
        heads = {name: [each[:3] for each in values] for name, values in of_heads(row).items()}
        return {**FORMS["ids"](row), **heads}

    tops = [(np.argsort(-row["q"], -1)[:, :3], np.argsort(-row["p"], -1)[:, :3]) for row in ROWS]
    whole = sum(
        set(ids) <= set(of_q[t].tolist()) & set(of_p[t].tolist())
        for row, (of_q, of_p) in zip(ROWS, tops, strict=True)
        for t, ids in enumerate(row["sets"])
    )
    found = kept(dump(tmp_path, short))
    assert found is not None
    assert 100 < found.tokens == whole < 1250


@pytest.mark.parametrize(
    "wrong",
    [
        {"sampling_mask": None},
        {"sampling_mask": {"ids": b"abc", "counts": b"abc"}},
        {"sampling_mask": {"ids": "?", "counts": "?"}},
        {"sampling_mask": {"token_ids": [1, 2], "offsets": [1, 2]}},
        {"sampling_mask": {"token_ids": [1, 2], "offsets": []}},
        {"sampling_mask": {"ids": [1], "other": [2]}},
        {"sampling_mask": [[1], [2, 3]]},
        {"sampling_mask": {"a": 1}},
        {"rollout_sampling_mask_offsets": [5, 4, 3], "rollout_sampling_mask_ids": [1]},
    ],
)
def test_kept_sets_that_do_not_fit_tell_nothing(wrong: Row, tmp_path: Path) -> None:
    extra = {"rollout_kept_log_probs": [[-1.0]], "old_kept_log_probs": None}
    path = dump(tmp_path, lambda _: wrong | extra)
    assert said(path) == ""
    assert kept(path) is None


def test_parts_and_saved_totals_tell_what_the_whole_does_without_masked_tokens(tmp_path: Path) -> None:
    def form(row: Row) -> Row:
        return {**FORMS["ids"](row), **of_columns(row), "response_mask": [int(t % 5 > 0) for t in range(25)]}

    whole, parts, saved = tmp_path / "whole", tmp_path / "parts", tmp_path / "all.rlcorr"
    whole.mkdir()
    found = kept(dump(whole, form))
    for place, part in enumerate((ROWS[:20], ROWS[20:])):
        (parts / str(place)).mkdir(parents=True)
        dump(parts / str(place), form, rows=part)
    diagnose(parts, output=saved)
    ratios, *_ = over_sets()
    valid = np.arange(len(ratios)) % 5 > 0
    assert found is not None
    assert (found.tokens, found.sd) == (1000, pytest.approx(np.std(np.array(ratios)[valid]), rel=1e-6))
    assert found == kept(parts) == kept(saved)
