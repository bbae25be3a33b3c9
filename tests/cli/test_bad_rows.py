"""Bad rows: stop at the first, leave them out, or write them apart; nothing is lost and nothing silently repaired."""

import base64
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from running import BF16, STEPS, analyzed, jsonl, parquet, row, run

import rlcorr_cli

NAN, INF = float("nan"), float("inf")
Rows = list[dict[str, Any]]
SKIP = ("--on-bad-row", "skip", "--max-bad-fraction", "1")


def good(n: int, **more: Any) -> Rows:
    return [
        row([-0.5 - i / 8, -1.0], [-0.25 - i / 8, -1.125], response_mask=[1, 1], sample_id=f"s{i}", **more)
        for i in range(n)
    ]


def bad(**changed: Any) -> dict[str, Any]:
    return {**row([-0.5, -1.0], [-0.5, -2.0], response_mask=[1, 1], sample_id="bad"), **changed}


BAD: dict[str, tuple[str, dict[str, Any], str]] = {
    "null log-probs": ("null_list", bad(old_log_probs=None), "old_log_probs is null"),
    "null mask": ("null_list", bad(response_mask=None), "response_mask is null"),
    "other length": (
        "unequal_lengths",
        bad(old_log_probs=[-0.5]),
        "old_log_probs has 1 token, rollout_log_probs has 2",
    ),
    "mask of other length": ("unequal_lengths", bad(response_mask=[1]), "response_mask has 1 token"),
    "mask of 2": ("mask_values", bad(response_mask=[1, 2]), "response_mask[1] is 2; a mask holds 0 and 1"),
    "null token": ("not_finite", bad(rollout_log_probs=[None, -1.0]), "rollout_log_probs[0] is null on a valid token"),
    "NaN": ("not_finite", bad(old_log_probs=[-1.0, NAN]), "old_log_probs[1] is nan"),
    "infinite": ("not_finite", bad(old_log_probs=[-INF, -1.0]), "old_log_probs[0] is -inf"),
    "open-instruct's +1": ("above_zero", bad(rollout_log_probs=[-1.0, 1.0]), "rollout_log_probs[1] is 1 on a valid"),
    "OpenAI's -9999": ("sentinel", bad(rollout_log_probs=[-9999.0, -1.0]), "rollout_log_probs[0] is -9999 on a valid"),
    "id seen before": ("duplicate_id", bad(sample_id="s1"), "sample_id s1 is there twice"),
}
WRITERS: dict[str, Callable[[Path, Iterable[dict[str, Any]]], str]] = {"parquet": parquet, "jsonl": jsonl}


def rows_of(path: Path) -> Rows:
    if path.suffix == ".parquet":
        return pq.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text().splitlines()]


def plain(rows: Rows) -> list[str]:
    """Rows as text, so that NaN equals itself."""
    return [json.dumps(one, sort_keys=True) for one in rows]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_stops_or_is_left_out(case: str, form: str, tmp_path: Path) -> None:
    problem, one, says = BAD[case]
    before, after = good(3), [{**r, "sample_id": f"t{i}"} for i, r in enumerate(good(2))]
    write = WRITERS[form]
    path = write(tmp_path / f"d.{form}", [*before, one, *after])
    clean = write(tmp_path / f"clean.{form}", [*before, *after])
    place = "row 3 (0-based)" if form == "parquet" else "line 4"
    stopped = run("analyze", path)
    assert stopped.status == 3
    assert f"d.{form}, {place}: {says}" in stopped.err
    assert "--on-bad-row skip" in stopped.err
    found, wanted = analyzed(path, *SKIP), analyzed(clean)
    assert list(found["problems"]) == [problem]
    assert found["problems"][problem]["rows"] == 1
    assert f"d.{form}, {place}: {says}" in found["problems"][problem]["first"]
    assert found["metrics"] == wanted["metrics"]
    assert found["intervals"] == wanted["intervals"]
    assert found["counts"] == {**wanted["counts"], "rows": 6, "bad_rows": 1}
    assert found["inputs"][0]["rows"] == 6


@pytest.mark.parametrize("form", WRITERS)
def test_what_is_written_and_what_is_set_aside_is_the_whole_input(form: str, tmp_path: Path) -> None:
    given = [r for i, (_, one, _) in enumerate(BAD.values()) for r in (good(20)[i], one)]
    given = [{**r, "sample_id": f"x{i}"} if r["sample_id"] == "bad" else r for i, r in enumerate(given)]
    path = WRITERS[form](tmp_path / f"d.{form}", given)
    out, apart = tmp_path / f"out.{form}", tmp_path / f"bad.{form}"
    args = ("--is", "token", "--rejected", "keep", "--quarantine", str(apart), "--max-bad-fraction", "1")
    report = run("filter", path, *args, "-o", str(out), "--json").json
    accounts = report["output"]
    assert accounts["rows_in"] == len(given) == accounts["rows_out"] + accounts["rows_quarantined"]
    assert accounts["rows_skipped"] == 0
    assert accounts["quarantine"] == str(apart)
    names = list(rows_of(Path(path))[0])
    kept = [{name: one.get(name) for name in names} for one in rows_of(out)]
    aside = rows_of(apart)
    reasons = [one.pop("rlcorr_problem") for one in aside]
    assert sorted(plain(kept) + plain(aside)) == sorted(plain(rows_of(Path(path))))
    assert sorted({reason.split(": ")[0] for reason in reasons}) == sorted({one[0] for one in BAD.values()})
    wanted = [text for _, _, text in BAD.values()]
    assert all(any(text in reason for reason in reasons) for text in wanted)


@pytest.mark.parametrize("command", [("analyze",), ("filter", "--is", "token", "--dry-run"), ("inspect",), ("check",)])
def test_every_command_can_set_bad_rows_aside(command: tuple[str, ...], tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [*good(4), bad(old_log_probs=None)])
    apart = tmp_path / "bad.parquet"
    ran = run(*command, path, "--quarantine", str(apart), "--max-bad-fraction", "0.2")
    assert ran.status == 0, ran.err
    (one,) = pq.read_table(apart).to_pylist()
    assert one["sample_id"] == "bad"
    assert one["rlcorr_problem"] == "null_list: old_log_probs is null"


def test_lines_that_cannot_be_read_are_bad_rows(tmp_path: Path) -> None:
    lines = [json.dumps(one).encode() for one in good(4)]
    broken = [b'{"rollout_log_probs": [-1.0', b"[1]", b'{"rollout_log_probs": ["a"]}', b'{"uid": "\xff"}']
    path = tmp_path / "d.jsonl"
    path.write_bytes(b"\n".join([broken[0], lines[0], *broken[1:], *lines[1:]]) + b"\n")
    apart = tmp_path / "bad.jsonl"
    found = analyzed(str(path), "--quarantine", str(apart), "--max-bad-fraction", "0.5")
    assert found["problems"]["unreadable_line"]["rows"] == 4
    assert found["problems"]["unreadable_line"]["first"].endswith(
        "d.jsonl, line 1 is not JSON: Expecting ',' delimiter at column 28"
    )
    assert found["metrics"] == analyzed(jsonl(tmp_path / "clean.jsonl", good(4)))["metrics"]
    aside = rows_of(apart)
    assert [one["rlcorr_problem"].split(": ")[0] for one in aside] == ["unreadable_line"] * 4
    assert [one.get("rlcorr_line") for one in aside] == ['{"rollout_log_probs": [-1.0', "[1]", None, None]
    assert aside[2]["rollout_log_probs"] == ["a"]
    assert base64.b64decode(aside[3]["rlcorr_line_base64"]) == broken[3]


def test_one_bad_row_in_20_000(tmp_path: Path) -> None:
    n, length, place = 20_000, 20, 16_789
    rng = np.random.default_rng(0)
    offsets = pa.array(np.arange(0, length * n + 1, length, dtype=np.int32))
    rollout = -rng.random(length * n)
    lists = {
        "rollout_log_probs": pa.ListArray.from_arrays(offsets, pa.array(rollout)),
        "old_log_probs": pa.ListArray.from_arrays(offsets, pa.array(rollout + rng.normal(0, 0.01, length * n) - 0.1)),
    }
    table = pa.table({"sample_id": pa.array(np.arange(n)), **lists})
    broken = table.slice(place, 1).to_pylist()
    broken[0]["old_log_probs"] = [-1.0, None, *[-1.0] * (length - 2)]
    wrong = pa.concat_tables(
        [table.slice(0, place), pa.Table.from_pylist(broken, table.schema), table.slice(place + 1)]
    )
    pq.write_table(wrong, tmp_path / "d.parquet", row_group_size=3_000)
    pq.write_table(pa.concat_tables([table.slice(0, place), table.slice(place + 1)]), tmp_path / "clean.parquet")
    path, apart, out = str(tmp_path / "d.parquet"), tmp_path / "bad.parquet", tmp_path / "out.parquet"
    batches = ("--batch-tokens", "50000")  # the bad row is not in the first
    stopped = run("analyze", path, *batches)
    assert stopped.status == 3
    assert f"d.parquet, row {place} (0-based): old_log_probs[1] is null on a valid token" in stopped.err
    found, wanted = analyzed(path, "--on-bad-row", "skip", *batches), analyzed(str(tmp_path / "clean.parquet"))
    assert found["counts"]["rows"] == n
    assert found["problems"]["not_finite"]["rows"] == 1
    numbers = {name: value for name, value in wanted["metrics"].items() if value is not None}
    assert {name: found["metrics"][name] for name in numbers} == pytest.approx(numbers, rel=1e-9, abs=1e-12)
    args = ("--is", "token", "--rejected", "keep", "--quarantine", str(apart))
    # The values are made up: their mean ratio is far from 1.
    assert run("filter", path, *args, "--force", "-o", str(out)).status == 0
    kept, aside = pq.read_table(out, columns=wrong.column_names), pq.read_table(apart, columns=wrong.column_names)
    whole = pa.concat_tables([kept.slice(0, place), aside, kept.slice(place)])
    assert whole.equals(wrong)


def test_too_many_bad_rows_stop_the_run_and_leave_nothing(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [*good(1), bad(old_log_probs=None), bad(rollout_log_probs=[0.5, 0.5])])
    out, apart = tmp_path / "out.parquet", tmp_path / "bad.parquet"
    ran = run("filter", path, "--is", "token", "-o", str(out), "--quarantine", str(apart))
    assert ran.status == 3
    assert "2 of 3 rows are bad (66.67%), which exceeds --max-bad-fraction 0.5: " in ran.err
    assert "null_list 1, above_zero 1" in ran.err
    assert "d.parquet, row 1 (0-based)" in ran.err
    assert [one.name for one in tmp_path.iterdir()] == ["d.parquet"]
    assert run("analyze", path, "--on-bad-row", "skip").status == 3
    assert run("analyze", path, "--on-bad-row", "skip", "--max-bad-fraction", "0.7").status == 0


def test_skipping_goes_on_past_one_bad_row_of_a_small_batch(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [*good(63), bad(old_log_probs=None)])
    assert run("analyze", path, "--on-bad-row", "skip").status == 0
    assert run("analyze", path, "--on-bad-row", "skip", "--max-bad-fraction", "0.01").status == 3


def test_a_dump_of_bad_rows_only_is_no_dump(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [bad(rollout_log_probs=[None, None]), bad(rollout_log_probs=[NAN, NAN])])
    ran = run("analyze", path, *SKIP)
    assert ran.status == 3
    assert "all 2 rows are bad" in ran.err
    some = parquet(tmp_path / "some.parquet", [bad(rollout_log_probs=[None, None]), bad(response_mask=[0, 0])])
    ran = run("analyze", some, *SKIP)
    assert ran.status == 3
    assert "no valid token, 2 tokens of 1 row masked; 1 bad row left out" in ran.err


def test_no_quarantine_is_written_where_there_are_no_bad_rows(tmp_path: Path) -> None:
    assert run("analyze", BF16, "--quarantine", str(tmp_path / "bad.parquet")).status == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", WRITERS)
def test_single_tokens_that_are_not_finite_can_be_masked(form: str, tmp_path: Path) -> None:
    rows = good(3)
    masked = [dict(one) for one in rows]
    rows[0]["old_log_probs"], masked[0]["response_mask"] = [NAN, -1.125], [0, 1]
    rows[2]["rollout_log_probs"], masked[2]["response_mask"] = [-1.0, None], [1, 0]
    masked[2]["rollout_log_probs"] = [-1.0, -1.0]
    path = WRITERS[form](tmp_path / f"d.{form}", rows)
    found = analyzed(path, "--nonfinite", "mask")
    wanted = analyzed(WRITERS[form](tmp_path / f"m.{form}", masked))
    assert found["metrics"] == wanted["metrics"]
    assert found["counts"] == wanted["counts"]
    assert "2 tokens masked for values that are not finite." in found["notes"]
    out = tmp_path / f"out.{form}"
    assert run("filter", path, "--is", "token", "--nonfinite", "mask", "-o", str(out)).status == 0
    assert [one["response_mask"] for one in rows_of(out)] == [[0, 1], [1, 1], [1, 0]]
    assert [one["response_mask_before"] for one in rows_of(out)] == [[1, 1]] * 3
    assert rows_of(out)[0]["rollout_is_weights"][0] == 0


@pytest.mark.parametrize("form", WRITERS)
def test_tokens_that_the_engine_did_not_score_can_be_kept_at_ratio_1(form: str, tmp_path: Path) -> None:
    rows = good(3)
    agreed = [dict(one) for one in rows]
    rows[0]["rollout_log_probs"], agreed[0]["rollout_log_probs"] = [NAN, -1.125], [rows[0]["old_log_probs"][0], -1.125]
    rows[2]["rollout_log_probs"], agreed[2]["rollout_log_probs"] = [-0.25, None], [-0.25, rows[2]["old_log_probs"][1]]
    path = WRITERS[form](tmp_path / f"d.{form}", rows)
    found = analyzed(path, "--is", "token", "--nonfinite", "keep")
    wanted = analyzed(WRITERS[form](tmp_path / f"a.{form}", agreed), "--is", "token")
    assert found["metrics"] == wanted["metrics"]
    assert found["counts"] == wanted["counts"]
    (note,) = (note for note in found["notes"] if "at ratio 1" in note)
    assert note.startswith("2 tokens without a rollout log-prob kept at ratio 1; every metric of differences counts a ")
    out = tmp_path / f"out.{form}"
    assert run("filter", path, "--is", "token", "--nonfinite", "keep", "-o", str(out)).status == 0
    written = rows_of(out)
    assert [one["response_mask"] for one in written] == [[1, 1]] * 3
    assert written[0]["rollout_is_weights"][0] == written[2]["rollout_is_weights"][1] == 1
    assert [[value is None or value != value for value in one["rollout_log_probs"]] for one in written] == [
        [True, False],
        [False, False],
        [False, True],
    ]


NOT_KEPT: dict[str, dict[str, Any]] = {
    "the trainer's": {"old_log_probs": [NAN, -1.0]},
    "both": {"old_log_probs": [-1.0, NAN], "rollout_log_probs": [-1.0, None]},
    "infinite": {"rollout_log_probs": [-INF, -1.0]},
    "infinite above": {"rollout_log_probs": [INF, -1.0]},
}


@pytest.mark.parametrize("case", NOT_KEPT)
def test_only_a_missing_rollout_log_prob_is_kept(case: str, tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [*good(3), bad(**NOT_KEPT[case])])
    assert "on a valid token" in run("analyze", path, "--nonfinite", "keep").err
    found = analyzed(path, "--nonfinite", "keep", *SKIP)
    assert {name: one["rows"] for name, one in found["problems"].items()} == {"not_finite": 1}


def test_a_token_without_a_rollout_log_prob_is_kept_whatever_is_compared(tmp_path: Path) -> None:
    """Ratio 1 between any policy and the rollout's; from the old to the current one it is what it is."""
    rows = [
        {
            "rollout_log_probs": [-1.0, None],
            "old_log_probs": [-1.2, -0.5],
            "current_log_probs": [-1.4, -0.9],
            "response_mask": [1, 1],
        }
    ]
    path = jsonl(tmp_path / "d.jsonl", rows)
    for mode, gap in (("decoupled", 0.2), ("bypass", 0.4)):
        metrics = analyzed(path, "--mode", mode, "--nonfinite", "keep")["metrics"]
        assert metrics["kl"] == pytest.approx(gap / 2)
    assert analyzed(path, "--nonfinite", "keep")["metrics"]["ppo_kl"] == pytest.approx((0.2 + 0.4) / 2)
    compared = run("compare", path, "--nonfinite", "keep", "--json")
    assert compared.status == 0, compared.err


def test_one_row_is_shown_with_single_tokens_masked_or_kept(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "d.jsonl", [bad(rollout_log_probs=[-1.0, None])])
    shown = {
        what: run("inspect", path, "--row", "1", "--nonfinite", what, "--json").json["rows"][0]
        for what in ("mask", "keep")
    }
    assert [len(shown[what]["log_ratios"]) for what in ("mask", "keep")] == [1, 2]
    assert shown["keep"]["log_ratios"][1] == 0


def test_masking_clears_single_tokens_and_other_problems_stay(tmp_path: Path) -> None:
    rows = [*good(3), bad(rollout_log_probs=[None, 0.5]), bad(rollout_log_probs=[None, -1.0], sample_id="c")]
    path = parquet(tmp_path / "d.parquet", rows)
    assert "rollout_log_probs[1] is 0.5" in run("analyze", path, "--nonfinite", "mask").err
    found = analyzed(path, "--nonfinite", "mask", *SKIP)
    assert {name: one["rows"] for name, one in found["problems"].items()} == {"above_zero": 1}
    assert found["counts"]["masked_tokens"] == 1
    assert "1 token masked for values that are not finite." in found["notes"]


def test_advantages_are_looked_at_only_where_the_plan_does(tmp_path: Path) -> None:
    rows = [
        *good(3, advantage=0.5),
        {**bad(), "advantage": None},
        {**bad(response_mask=[0, 0], sample_id="m"), "advantage": None},
    ]
    path = parquet(tmp_path / "d.parquet", [{**one, "current_log_probs": one["old_log_probs"]} for one in rows])
    assert run("analyze", path).status == 0
    stopped = run("analyze", path, "--preset", "opsm")
    assert stopped.status == 3
    assert "row 3 (0-based): advantage is null" in stopped.err
    assert analyzed(path, "--preset", "opsm", *SKIP)["problems"]["not_finite"]["rows"] == 1


def test_an_id_may_come_again_in_another_step(tmp_path: Path) -> None:
    two = [*good(3, step=1), *good(3, step=2)]
    assert run("analyze", parquet(tmp_path / "two.parquet", two)).status == 0
    unnamed = [{**one, "sample_id": None} for one in good(3)]
    assert run("analyze", parquet(tmp_path / "unnamed.parquet", unnamed)).status == 0
    again = parquet(tmp_path / "again.parquet", [*two, *good(1, step=2)])
    assert "sample_id s0 is there twice in step 2" in run("analyze", again).err


def test_a_file_named_otherwise_but_written_twice_is_noticed(tmp_path: Path) -> None:
    paths = [parquet(tmp_path / f"{name}.parquet", good(5)) for name in ("a", "b")]
    assert run("analyze", *paths).status == 3
    found = analyzed(*paths, *SKIP, "--engine", "threads", "--workers", "4")
    assert found["problems"]["duplicate_id"]["rows"] == 5
    assert "b.parquet, row 0 (0-based)" in found["problems"]["duplicate_id"]["first"]
    assert found["metrics"] == analyzed(paths[0])["metrics"]
    assert [one["rows"] for one in found["inputs"]] == [5, 5]


def test_a_bad_row_does_not_take_its_id_from_a_good_one(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [bad(sample_id="s0", old_log_probs=[NAN, -1.0]), *good(3)])
    assert {n: one["rows"] for n, one in analyzed(path, *SKIP)["problems"].items()} == {"not_finite": 1}


def test_drawn_copies_are_told_apart(tmp_path: Path) -> None:
    out = tmp_path / "out.parquet"
    assert run("filter", STEPS, "--preset", "seq_is", "--resample", "1000", "-o", str(out)).status == 0
    copies = pq.read_table(out)["rlcorr_draw"].to_pylist()
    assert max(copies) > 0
    assert analyzed(str(out))["counts"]["rows"] == 1000


@pytest.mark.parametrize("threads", ["1", "4"])
def test_a_quarantine_is_in_the_dumps_order(threads: str, tmp_path: Path) -> None:
    rows = [
        bad(sample_id=f"b{i:03}", old_log_probs=None) if i % 3 else good(1)[0] | {"sample_id": f"g{i}"}
        for i in range(90)
    ]
    for i in range(3):
        parquet(tmp_path / f"{i}.parquet", rows[30 * i : 30 * i + 30])
    apart = tmp_path / "out" / "bad.parquet"
    apart.parent.mkdir()
    paths = [str(tmp_path / f"{i}.parquet") for i in range(3)]
    assert (
        run("analyze", *paths, "--quarantine", str(apart), "--max-bad-fraction", "1", "--workers", threads).status == 0
    )
    ids = pq.read_table(apart)["sample_id"].to_pylist()
    assert ids == [f"b{i:03}" for i in range(90) if i % 3]


def test_a_limit_counts_bad_rows_too(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [bad(old_log_probs=None), *good(5)])
    assert analyzed(path, *SKIP, "--limit", "3")["counts"]["rows"] == 3


WRONG: dict[str, tuple[tuple[str, ...], int, str]] = {
    "a share of nothing": (("--max-bad-fraction", "0.5"), 2, "--on-bad-row skip"),
    "unknown policy": (("--on-bad-row", "drop"), 2, "error, skip, got"),
    "unknown nonfinite": (("--nonfinite", "zero"), 2, "error, mask, keep"),
    "another format": (("--quarantine", "bad.jsonl"), 2, ".parquet"),
    "no such folder": (("--quarantine", "none/bad.parquet"), 4, "no directory"),
    "the dump itself": (("--quarantine", "d.parquet"), 2, "part of the dump"),
    "an existing file": (("--quarantine", "old.parquet"), 4, "old.parquet exists"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_uses_are_refused_before_reading(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    args, status, part = WRONG[case]
    parquet(tmp_path / "d.parquet", [*good(3), bad(old_log_probs=None)])
    (tmp_path / "old.parquet").write_text("old")
    ran = run("analyze", "d.parquet", *args)
    assert (ran.status, part in ran.err) == (status, True), ran.err
    assert sorted(one.name for one in tmp_path.iterdir()) == ["d.parquet", "old.parquet"]
    assert (tmp_path / "old.parquet").read_text() == "old"


def test_outputs_may_not_share_a_name(tmp_path: Path) -> None:
    out = str(tmp_path / "out.parquet")
    ran = run("filter", BF16, "--is", "token", "-o", out, "--quarantine", out)
    assert ran.status == 2
    assert "cannot be both outputs" in ran.err


def test_text_says_what_was_left_out(tmp_path: Path) -> None:
    path = parquet(tmp_path / "d.parquet", [*good(3), bad(old_log_probs=None)])
    text = " ".join(run("analyze", path, *SKIP).out.split())
    assert "not counted: 1 bad row " in text
    assert "null_list: 1 row left out;" in text
    summary = " ".join(run("filter", path, "--is", "token", *SKIP, "--dry-run").out.split())
    assert "4 rows in = 3 out + 0 dropped + 1 skipped." in summary


def above(largest: float, at: int = 0) -> Rows:
    """Rows of bf16 log-probs, a few of which are rounded to just above 0."""
    rows = good(8)
    rows[at]["old_log_probs"][0] = largest
    rows[5]["old_log_probs"][1] = 0.03125
    return rows


@pytest.mark.parametrize(
    ("values", "says", "do"),
    [
        (above(0.125), "2 of 16 values here are, up to 0.125 on a grid of 1/32", "--above-zero clamp"),
        (above(0.3), "(the largest is 0.3)", "More than 0.25 is no rounding."),
        (above(63.212), "63.212 on a valid token", "Are these logits, or negative log-probs (nll)?"),
        ([row([-0.5, -1.0], [0.5, 0.25])], "0.5 on a valid token", "Are these probabilities?"),
    ],
)
def test_a_value_above_zero_is_called_what_it_looks_like(tmp_path: Path, values: Rows, says: str, do: str) -> None:
    ran = run("analyze", parquet(tmp_path / "d.parquet", values))
    assert ran.status == 3
    problem, remedy = ran.err.splitlines()
    assert says in problem
    assert do in remedy


@pytest.mark.parametrize("command", ["analyze", "diagnose", "compare", "inspect", "check"])
def test_values_a_little_above_zero_are_read_as_zero_and_counted(command: str, tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", above(0.125))
    ran = run(command, dump, "--above-zero", "clamp", "--json")
    assert "2 tokens with a log-prob above 0 (0.25 at most) read as 0" in ran.out, ran.err


def test_check_counts_the_tokens_that_are_masked_for_what_they_hold(tmp_path: Path) -> None:
    dump = parquet(tmp_path / "d.parquet", [row([-0.5, -1.0], [-0.5, float("nan")])])
    ran = run("check", dump, "--nonfinite", "mask", "--json")
    assert "1 token masked for values that are not finite." in ran.out, ran.err


def test_clamped_values_measure_as_zeros_do_and_filter_takes_them(tmp_path: Path) -> None:
    rows, zeros = above(0.125), above(0.0)
    zeros[5]["old_log_probs"][1] = 0.0
    clamped = analyzed(parquet(tmp_path / "d.parquet", rows), "--above-zero", "clamp")
    assert clamped["metrics"] == analyzed(parquet(tmp_path / "z.parquet", zeros))["metrics"]
    out = tmp_path / "out.parquet"
    assert (
        run(
            "filter", str(tmp_path / "d.parquet"), "--above-zero", "clamp", "--preset", "token_is", "-o", str(out)
        ).status
        == 0
    )
    assert rlcorr_cli.correct(pa.Table.from_pylist(rows), preset="token_is", above_zero="clamp") is not None
    assert run("analyze", parquet(tmp_path / "e.parquet", above(0.3)), "--above-zero", "clamp").status == 3


def test_not_finite_numbers_as_text_are_read_as_such(tmp_path: Path) -> None:
    """ART writes NaN so; it may be the first value of a list."""
    rows = good(8)
    rows[0]["rollout_log_probs"][0], rows[3]["old_log_probs"][1] = "NaN", "-Infinity"
    dump = jsonl(tmp_path / "d.jsonl", rows)
    assert "line 1: rollout_log_probs[0] is nan on a valid token" in run("analyze", dump).err
    assert "2 tokens masked" in " ".join(analyzed(dump, "--nonfinite", "mask")["notes"])
