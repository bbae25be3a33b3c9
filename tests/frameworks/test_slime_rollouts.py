"""slime's averages where several samples are of one rollout (`rollout_ids`): slow loops, written from its definition.

A sample's sum over its loss tokens is divided by the loss tokens of all samples of its rollout, at least 1, and the
sum of that over samples by the number of rollouts.  No reference values were run of this: the loops below are held to
slime's own numbers where every sample is a rollout of its own (`test_the_loops_are_slimes_own_...`), and their
division is all that is new with rollouts.
"""

import io
import json
import random
from collections.abc import Callable, Sequence
from math import exp, expm1
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from profiled import report

from rlcorr_cli import analyze
from tests.layouts import slime_made

Row = dict[str, Any]
Config = dict[str, Any]
Tokens = list[float]

GOLDEN = Path(__file__).parent.parent / "golden"


def made(seed: int, lengths: Sequence[tuple[object, int, int]], **more: Any) -> list[Row]:
    """Rows by (rollout, tokens, masked tokens before them)."""
    rng = random.Random(seed)
    rows: list[Row] = []
    for number, (rollout, n, masked) in enumerate(lengths):
        b = [-0.5 - 3 * rng.random() for _ in range(n + masked)]
        a = [min(x + rng.gauss(0, 0.4), -0.01) for x in b]
        mask = [0] * masked + [1] * n
        row = {"rollout_log_probs": b, "old_log_probs": a, "response_mask": mask, "sample_id": f"s{number}"}
        rows.append({**row, "rollout_ids": rollout, **more})
    return rows


# The lengths of the review: six samples of three rollouts; then masks, a rollout all masked, and one sample of none.
SIX = made(1, [(0, 5, 0), (0, 40, 0), (0, 3, 0), (1, 20, 0), (1, 10, 0), (2, 2, 0)])
MASKED = made(2, [(7, 4, 2), (9, 0, 3), (7, 11, 1), (9, 0, 0), (8, 6, 0), (7, 0, 4), (3, 0, 2), (8, 1, 0)])


class Loops:
    """Every mis_* of some rows under a config."""

    def __init__(self, rows: Sequence[Row], config: Config) -> None:
        self.rows, self.config = rows, config
        self.a, self.b = ([_valid(row, name) for row in rows] for name in ("old_log_probs", "rollout_log_probs"))
        self.logs = [[x - y for x, y in zip(a, b, strict=True)] for a, b in zip(self.a, self.b, strict=True)]

    def mean(self, values: Sequence[Tokens]) -> float:
        """The average of one value for each loss token: over rollouts, of the sum over all loss tokens of each."""
        rollout_of = [row["rollout_ids"] for row in self.rows]
        total = 0.0
        for rollout in set(rollout_of):
            mine = [xs for xs, other in zip(values, rollout_of, strict=True) if other == rollout]
            for xs in mine:
                for x in xs:
                    total += x / max(sum(len(others) for others in mine), 1)
        return total / len(set(rollout_of))

    def each(self, of_sample: Callable[[Tokens], float], values: Sequence[Tokens]) -> float:
        """The same of one value for each sample, which every loss token of it has."""
        return self.mean([[of_sample(xs)] * len(xs) if xs else [] for xs in values])

    def ratios(self, level: str) -> list[Tokens]:
        """The ratio of each loss token at a level."""
        if level == "token":
            return [[exp(_limited(x)) for x in xs] for xs in self.logs]
        return [
            [exp(_limited(sum(xs) / (len(xs) if level == "geometric" else 1)))] * len(xs) if xs else []
            for xs in self.logs
        ]

    def diagnostics(self) -> dict[str, float]:
        def log_ppl(xs: Tokens) -> float:
            return -sum(xs) / len(xs)

        return {
            "training_log_ppl": self.each(log_ppl, self.a),
            "training_ppl": self.each(lambda xs: exp(log_ppl(xs)), self.a),
            "rollout_log_ppl": self.each(log_ppl, self.b),
            "rollout_ppl": self.each(lambda xs: exp(log_ppl(xs)), self.b),
            "log_ppl_diff": self.each(log_ppl, self.logs),
            "log_ppl_abs_diff": self.each(lambda xs: abs(log_ppl(xs)), self.logs),
            "ppl_ratio": self.each(lambda xs: exp(log_ppl(xs)), self.logs),
            "kl": self.mean([[-x for x in xs] for xs in self.logs]),
            "k3_kl": self.mean([[expm1(x) - x for x in xs] for xs in self.logs]),
            "chi2_token": self.mean([[expm1(2 * _limited(x)) for x in xs] for xs in self.logs]),
            "chi2_seq": self.each(lambda xs: expm1(2 * _limited(sum(xs))), self.logs),
        }

    def option(self, name: str, default: Any) -> Any:
        value = self.config.get(name)
        return default if value is None else value

    def weights(self) -> dict[str, float]:
        config, high = self.config, self.option("tis_upper_bound", 2.0)
        low, mode = self.option("tis_lower_bound", 1 / high), self.option("tis_mode", "truncate")
        level = self.option("tis_level", "token")
        raw = self.ratios(level)
        ends = {"truncate": (0.0, high), "clip": (low, high), "mask": (0.0, float("inf"))}[mode]
        applied = [[min(max(x, ends[0]), ends[1]) for x in xs] for xs in raw]
        out = {
            "tis_weight_before_bound": self.mean(raw),
            "tis_weight_after_bound": self.mean(applied),
            "is_ratio_mean_after_tis_rs": self.mean(applied),
        }
        if mode == "truncate":
            out["tis_truncate_fraction"] = self.mean(_flags(raw, above=high))
        else:
            out[f"tis_{mode}_fraction_low"] = self.mean(_flags(raw, below=low))
            out[f"tis_{mode}_fraction_high"] = self.mean(_flags(raw, above=high))
        if config.get("tis_batch_normalize"):
            # Over tokens, or over samples, one without a loss token as 0; rollouts do not matter here.
            units = [x for xs in applied for x in (xs if level == "token" else xs[:1] or [0.0])]
            factor = sum(units) / len(units)
            applied = [[x / factor for x in xs] for xs in applied]
            out["batch_norm_factor"] = self.each(lambda xs: factor, applied)
        out["is_ratio_mean_final"] = self.mean(applied)
        out["is_ratio_min_final"] = self.each(min, applied)
        out["is_ratio_max_final"] = self.each(max, applied)
        return out

    def rejections(self) -> dict[str, float]:
        config = self.config
        if not config.get("use_rs"):
            return {}
        weights_high = self.option("tis_upper_bound", 2.0)
        high = self.option("rs_upper_bound", weights_high)
        low = self.option("rs_lower_bound", self.option("tis_lower_bound", 1 / weights_high))
        raw = self.ratios(self.option("rs_level", "token"))
        out = {
            "rs_mask_fraction_low": self.mean(_flags(raw, below=low)),
            "rs_mask_fraction_high": self.mean(_flags(raw, above=high)),
        }
        veto = config.get("rs_veto_threshold")
        if veto is not None:
            below = _flags([[exp(x) for x in xs] for xs in self.logs], below=veto)
            out["rs_catastrophic_token_fraction"] = self.mean(below)
            out["rs_catastrophic_seq_fraction"] = self.each(lambda xs: float(any(xs)), below)
        return out

    def all(self) -> dict[str, float]:
        found = self.diagnostics() | self.weights() | self.rejections()
        return {f"mis_{name}": value for name, value in found.items()}


def _valid(row: Row, name: str) -> Tokens:
    return [x for x, kept in zip(row[name], row["response_mask"], strict=True) if kept]


def _limited(x: float) -> float:
    return max(-20.0, min(20.0, x))


def _flags(values: Sequence[Tokens], *, below: float = -1.0, above: float = float("inf")) -> list[Tokens]:
    return [[float(x < below or x > above) for x in xs] for xs in values]


CONFIGS: dict[str, Config] = {
    "plain": {},
    "truncate, token, normalised": {"tis_upper_bound": 1.3, "tis_batch_normalize": True},
    "clip, sequence, normalised": {
        "tis_mode": "clip",
        "tis_level": "sequence",
        "tis_upper_bound": 1.5,
        "tis_batch_normalize": True,
    },
    "mask, geometric": {"tis_mode": "mask", "tis_level": "geometric", "tis_upper_bound": 1.05},
    "rejection and veto": {
        "tis_upper_bound": 1.5,
        "use_rs": True,
        "rs_level": "token",
        "rs_upper_bound": 1.2,
        "rs_lower_bound": 0.8,
        "rs_veto_threshold": 0.5,
    },
    "rejection of sequences": {"use_rs": True, "rs_level": "sequence", "rs_upper_bound": 1.5},
}


def own_rollouts(rows: Sequence[Row]) -> list[Row]:
    return [{**row, "rollout_ids": number} for number, row in enumerate(rows)]


@pytest.mark.parametrize(
    "case", [case for case in json.loads((GOLDEN / "expected_metrics.json").read_text()) if "slime" in case]
)
def test_the_loops_are_slimes_own_where_each_sample_is_a_rollout(case: str) -> None:
    rows = own_rollouts(pq.read_table(GOLDEN / "input.parquet").to_pylist())
    golden = json.loads((GOLDEN / "expected_metrics.json").read_text())[case]
    if golden["config"].get("use_tis", True):
        assert Loops(rows, golden["config"]).all() == pytest.approx(golden["metrics"], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("rows", [SIX, MASKED], ids=["six samples of three rollouts", "masks and empty rollouts"])
@pytest.mark.parametrize("name", CONFIGS)
def test_samples_of_a_rollout_share_a_denominator(name: str, rows: list[Row], tmp_path: Path) -> None:
    config = CONFIGS[name]
    found = report(tmp_path, "slime", config, rows)
    right = Loops(rows, config).all()
    assert found["metrics"] == pytest.approx(right, rel=1e-9, abs=1e-12)
    alone = report(tmp_path, "slime", config, own_rollouts(rows))["metrics"]
    assert alone == pytest.approx(Loops(own_rollouts(rows), config).all(), rel=1e-9, abs=1e-12)
    assert found["metrics"]["mis_k3_kl"] != pytest.approx(alone["mis_k3_kl"], rel=1e-2)
    n_rollouts = len({row["rollout_ids"] for row in rows})
    (note,) = (note for note in found["notes"] if "rollouts" in note)
    assert f"{len(rows)} samples of {n_rollouts} rollouts" in note


NORMALISED = CONFIGS["truncate, token, normalised"]


def measured(dump: Any, config: Config = NORMALISED, **options: Any) -> dict[str, float]:
    """The profile's metrics of a dump."""
    return dict(analyze(dump, plan=config, profile="slime", **options).whole.metrics)


def written(path: Path, rows: Sequence[Row]) -> Path:
    pq.write_table(pa.Table.from_pylist(list(rows)), path, row_group_size=2)
    return path


@pytest.mark.parametrize("options", [{"batch_tokens": 1}, {"engine": "processes", "workers": 2}], ids=str)
def test_samples_of_a_rollout_may_lie_anywhere(options: dict[str, Any], tmp_path: Path) -> None:
    """In other files, row groups and batches, read by other processes."""
    rows = [*SIX, *({**row, "sample_id": f"m{row['sample_id']}"} for row in MASKED)]
    parts = [written(tmp_path / f"part_{part}.parquet", rows[part::3]) for part in range(3)]
    right = Loops(rows, NORMALISED).all()
    assert measured(parts, **options) == pytest.approx(right, rel=1e-9, abs=1e-12)
    assert measured(rows_as_columns(rows)) == pytest.approx(right, rel=1e-9, abs=1e-12)


def rows_as_columns(rows: Sequence[Row]) -> pa.Table:
    """A table in memory."""
    return pa.Table.from_pylist(list(rows))


@pytest.mark.parametrize("folders", [False, True], ids=["a column", "folders"])
def test_ids_begin_anew_in_every_step(folders: bool, tmp_path: Path) -> None:
    for step, rows in enumerate((SIX, MASKED)):
        folder = tmp_path / f"step={step}"
        folder.mkdir()
        written(folder / "0.parquet", rows if folders else [{**row, "step": step} for row in rows])
    if not folders:
        tables = [pq.ParquetFile(path).read() for path in sorted(tmp_path.rglob("*.parquet"))]
        pq.write_table(pa.concat_tables(tables), tmp_path / "all.parquet")
    dump = tmp_path if folders else tmp_path / "all.parquet"
    both = [
        {**row, "rollout_ids": (step, row["rollout_ids"])} for step, rows in enumerate((SIX, MASKED)) for row in rows
    ]
    assert measured(dump) == pytest.approx(Loops(both, NORMALISED).all(), rel=1e-9, abs=1e-12)
    groups = analyze(dump, plan=NORMALISED, profile="slime", group_by="step", batch_by="step").groups
    for group, rows in zip(groups, (SIX, MASKED), strict=True):
        assert group.metrics == pytest.approx(Loops(rows, NORMALISED).all(), rel=1e-9, abs=1e-12)


def test_saved_totals_of_whole_rollouts_add(tmp_path: Path) -> None:
    parts = [written(tmp_path / f"{i}.parquet", rows) for i, rows in enumerate((SIX, MASKED))]
    for part in parts:
        analyze(part, plan={}, profile="slime", output=part.with_suffix(".rlcorr"))
    whole = analyze([part.with_suffix(".rlcorr") for part in parts]).whole
    both = [{**row, "rollout_ids": (i, row["rollout_ids"])} for i, rows in enumerate((SIX, MASKED)) for row in rows]
    assert whole.metrics == pytest.approx(Loops(both, {}).all(), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(("name", "columns"), [("rollout_ids", {}), ("episode", {"rollout_ids": "episode"})])
def test_ids_may_be_texts_under_another_name_and_a_sample_without_one_is_alone(
    name: str, columns: dict[str, str]
) -> None:
    named = {0: "a", 1: None, 2: "b"}
    rows = [{**row, name: named[row["rollout_ids"]]} for row in SIX]
    if name != "rollout_ids":
        rows = [{key: value for key, value in row.items() if key != "rollout_ids"} for row in rows]
    right = [{**row, "rollout_ids": row[name] or number} for number, row in enumerate(rows)]
    found = measured(rows_as_columns(rows), map=columns)
    assert found == pytest.approx(Loops(right, NORMALISED).all(), rel=1e-9, abs=1e-12)


def test_a_column_of_lists_is_not_taken_for_ids() -> None:
    rows = [{**row, "rollout_ids": [row["rollout_ids"]]} for row in SIX]
    found = analyze(rows_as_columns(rows), plan=NORMALISED, profile="slime")
    assert found.whole.metrics == pytest.approx(Loops(own_rollouts(SIX), NORMALISED).all(), rel=1e-9, abs=1e-12)
    assert any(note.startswith("rollout_ids is not used as rollout_ids: it holds list") for note in found.notes)


def test_only_slimes_profile_looks_at_rollouts(tmp_path: Path) -> None:
    apart = own_rollouts(SIX)
    for profile in ("canonical", "verl-0.9"):
        config = {"rollout_is": "token"} if profile != "canonical" else {"weighting": {"scope": "token"}}
        together, alone = (report(tmp_path, profile, config, rows) for rows in (SIX, apart))
        assert together["metrics"] == alone["metrics"]
        assert "rollout_ids" not in together["inputs"][0]["columns"]


def test_standard_input_is_read_once_and_a_note_says_what_that_leaves_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "".join(json.dumps(row) + "\n" for row in SIX)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    found = analyze("-", plan=NORMALISED, profile="slime")
    assert found.whole.metrics == pytest.approx(Loops(own_rollouts(SIX), NORMALISED).all(), rel=1e-9, abs=1e-12)
    (note,) = (note for note in found.notes if "rollout_ids is not looked at" in note)
    assert "Save it to a file" in note


def test_slimes_training_file_tells_which_samples_are_of_one_rollout(tmp_path: Path) -> None:
    """Two samples of 3 tokens, one of them of 1 that counts: by rollout the first weighs 3 to 1."""
    first = {**slime_made.SEQUENCE, "sample_index": 7, "data_parallel_rank": 0, "rollout_ids": 4}
    other = {**first, "sample_index": 8, "loss_masks": [0, 0, 1], "log_probs": [-0.5, -0.5, -0.1]}
    for ids, k3 in (((4, 4), 1 / 4), ((4, 5), 1 / 2)):
        samples = [{**row, "rollout_ids": rollout} for row, rollout in zip((first, other), ids, strict=True)]
        (tmp_path / "0.pt").write_bytes(
            slime_made.file({"format_version": 2, "rollout_id": 2, "rank": 0, "samples": samples})
        )
        assert measured(tmp_path / "0.pt", {})["mis_k3_kl"] == pytest.approx(k3 * (expm1(0.4) - 0.4), rel=1e-6)
