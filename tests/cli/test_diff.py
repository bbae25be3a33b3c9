"""`diff`: what moved between two dumps, by how much and on which side; nothing where nothing did."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from running import BF16, SAMPLE, STEPS, parquet, refused, row, run

from rlcorr_cli.metrics.diagnostics import METRICS
from rlcorr_cli.results.diffed import FAMILY, holm

INT8, FP32 = str(SAMPLE / "smollm2_int8.parquet"), str(SAMPLE / "smollm2_fp32.parquet")


def diffed(*args: str, status: int = 0) -> dict[str, Any]:
    ran = run("diff", *args, "--json")
    assert ran.status == status, ran.err
    return json.loads(ran.out)


@pytest.fixture(scope="module")
def rescored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """a.parquet and b.parquet: the same rollouts, scored by the policy before and after an update."""
    folder, table = tmp_path_factory.mktemp("rescored"), pq.read_table(STEPS)
    columns = ["group_id", "response_mask", "rollout_log_probs", "old_log_probs"]
    for name, step in (("a", 0), ("b", 2)):
        rows = table.filter(pc.field("step") == step).select(columns)
        pq.write_table(rows.add_column(0, "sample_id", [list(range(64))]), folder / f"{name}.parquet")
    return folder


def test_another_engine_is_seen_with_its_size() -> None:
    found = diffed(BF16, INT8)
    k3, tv, extreme = (found["metrics"][name] for name in ("k3_kl", "seq_tv", "extreme_token_fraction"))
    assert (k3["scale"], k3["moved"], extreme["moved"]) == ("ratio", True, False)
    assert k3["change"] == pytest.approx(3.45, abs=0.01)
    assert 2.8 < k3["low"] < 3.05
    assert 3.9 < k3["high"] < 4.2
    assert tv["change"] == pytest.approx(1.73, abs=0.01)
    assert (extreme["scale"], extreme["a"]) == ("difference", 0)
    assert extreme["change"] == pytest.approx(0.0002, abs=1e-5)
    assert found["pairs"] == {"both": 0, "only_a": 64, "only_b": 64, "other_text": 0, "exact": True}
    assert found["bits"] is None
    assert set(found["metrics"]) == set(FAMILY)


def test_the_first_sentence_says_what_moved_at_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    out = run("diff", BF16, INT8).out
    assert "B is farther apart: k3_kl is 3.45 times A's (3.01 to 3.95). No rows match" in " ".join(out.split())
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("  ? B: other_weights: Likely cause: one side runs other") for line in lines)
    table = {line.split()[0]: line for line in lines if "no evidence" in line}
    assert "0.0004 to 0.0063 no evidence" in table["kl"]  # it excludes 0, and Holm's test finds no evidence
    assert " to " not in table["seq_tv"]
    assert "what moved is judged over all metrics together (Holm)." in " ".join(out.split())
    assert (
        "A and B: close (k3_kl below 0.01). Token-level importance weights are usable; 8 prompts are too few to tell"
        in " ".join(out.split())
    )
    assert [line.split()[0] for line in lines[13:16]] == ["metric", "k3_kl", "logprob_abs_diff_mean"]
    assert "…" not in run("diff", BF16, INT8, "--all").out
    assert "B is closer" in run("diff", INT8, BF16).out


def test_it_is_said_by_what_rows_do_not_match_and_how_many_prompts_do(tmp_path: Path) -> None:
    def said(*dumps: str) -> str:
        return " ".join(run("diff", *dumps).out.split())

    # Three scorings of rollouts that were drawn anew from the same prompts.
    assert said(BF16, FP32, INT8).count("No rows match (by sample_id and step), but all 8 prompts do.") == 2
    table = pq.read_table(INT8)
    few = table.filter(pc.less(table["group_id"], "g3")).drop_columns(["sample_id"])
    pq.write_table(few, tmp_path / "few.parquet")
    assert "No rows match (by rollout log-probs), but 3 of A's 8 prompts do." in said(
        BF16, str(tmp_path / "few.parquet")
    )
    pq.write_table(table.drop_columns(["sample_id", "group_id"]), tmp_path / "bare.parquet")
    assert "No rows match (by rollout log-probs)." in said(BF16, str(tmp_path / "bare.parquet"))


def test_every_further_dump_is_compared_with_the_first() -> None:
    found = diffed(FP32, BF16, INT8)
    alone = {name: diffed(FP32, dump) for name, dump in (("B", BF16), ("C", INT8))}
    (other,) = found["others"]
    assert other["name"] == "C"
    for pair, of_two in ((found, alone["B"]), (other, alone["C"])):
        assert (pair["b"], pair["pairs"]) == (of_two["b"], of_two["pairs"])
        for name, change in of_two["metrics"].items():
            assert {key: pair["metrics"][name][key] for key in ("a", "b", "change", "low", "p")} == {
                key: change[key] for key in ("a", "b", "change", "low", "p")
            }
    tested = [change for pair in (found, other) for change in pair["metrics"].values() if change["p"] is not None]
    adjusted = holm({place: change["p"] for place, change in enumerate(tested)})
    assert [change["p_holm"] for change in tested] == [adjusted[place] for place in range(len(tested))]


def test_dumps_stand_in_columns_of_their_own_as_many_as_a_line_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    for width, tables in ((60, 3), (80, 2), (120, 1)):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = run("diff", FP32, BF16, INT8, STEPS).out.splitlines()
        assert max(map(len, lines)) <= width
        assert sum(line.startswith("  k3_kl ") for line in lines) == tables
    assert [line.split()[0] for line in lines[:4]] == ["A", "B", "C", "D"]
    assert [line.split()[0] for line in lines[5:8]] == ["B", "C", "D"]
    assert next(line for line in lines if line.startswith("  k3_kl ")).count("x ") == 3


def test_all_shows_what_is_not_tested_of_every_dump() -> None:
    lines = run("diff", FP32, BF16, INT8, "--all").out.splitlines()
    assert lines.count("  not tested") == 2
    assert sum(line.startswith("  token_ess ") for line in lines) == 2


def test_one_dump_that_moved_among_several_fails(tmp_path: Path) -> None:
    junit = tmp_path / "diff.xml"
    assert run("diff", BF16, BF16, BF16, "--fail-on", "moved").status == 0
    assert run("diff", BF16, BF16, INT8, "--fail-on", "moved", "--junit", str(junit)).status == 1
    failed = [case.get("classname") for case in ET.parse(junit).iter("testcase") if case.find("failure") is not None]
    assert failed
    assert all("dump C" in str(name) for name in failed)


def test_one_dump_is_not_compared_with_nothing() -> None:
    refused(run("diff", BF16), 2, "diff compares two dumps or more, and one is named", "Name another")


def test_rows_that_pair_narrow_the_interval_and_tell_the_policy_that_moved(rescored: Path) -> None:
    a, b = str(rescored / "a.parquet"), str(rescored / "b.parquet")
    paired = diffed(a, b)
    assert paired["pairs"] == {"both": 64, "only_a": 0, "only_b": 0, "other_text": 0, "exact": True}
    assert paired["bits"]["columns"]["rollout_log_probs"] == 0
    assert paired["bits"]["columns"]["old_log_probs"] > 0.1
    assert paired["bits"]["tokens_differ"] > 5000
    other = pq.read_table(b)
    ids = pa.array([f"other-{i}" for i in range(64)])
    apart = rescored / "apart.parquet"
    prompts = pa.array([f"other-{name}" for name in other["group_id"].to_pylist()])
    pq.write_table(other.set_column(0, "sample_id", ids).set_column(1, "group_id", prompts), apart)
    unpaired = diffed(a, str(apart))
    assert unpaired["pairs"]["both"] == 0

    def width(found: dict[str, Any]) -> float:
        k3 = found["metrics"]["k3_kl"]
        return k3["high"] / k3["low"]

    assert width(paired) < 0.9 * width(unpaired)
    assert paired["metrics"]["k3_kl"]["change"] == unpaired["metrics"]["k3_kl"]["change"]
    said = " ".join(run("diff", a, b).out.split())
    assert "rollout_log_probs is the same; old_log_probs differs by at most" in said


def test_rows_pair_without_ids_by_what_rollout_says_of_them(rescored: Path, tmp_path: Path) -> None:
    paths = []
    for name in ("a", "b"):
        table = pq.read_table(rescored / f"{name}.parquet").drop_columns(["sample_id"])
        paths.append(str(tmp_path / f"{name}.parquet"))
        pq.write_table(table if name == "a" else table.take(list(range(63, -1, -1))), paths[-1])
    assert diffed(*paths)["pairs"]["both"] == 64


def test_rows_pair_by_another_column_and_by_step_where_both_have_it(tmp_path: Path) -> None:
    rows = [row([-0.1 * i, -1.0], [-0.1 * i, -1.1], sample_id=i, step=0, own=f"x{i}") for i in range(1, 9)]
    a = parquet(tmp_path / "a.parquet", rows)
    b = parquet(tmp_path / "b.parquet", [{**each, "step": 1} for each in rows])
    c = parquet(tmp_path / "c.parquet", [{k: v for k, v in each.items() if k != "step"} for each in rows])
    d = parquet(tmp_path / "d.parquet", [{**each, "sample_id": each["sample_id"] + 100, "step": 0} for each in rows])
    assert diffed(a, b)["pairs"]["both"] == 0
    assert diffed(a, c)["pairs"]["both"] == 8
    assert diffed(a, d)["pairs"]["both"] == 0
    assert diffed(a, d, "--pair-by", "own")["pairs"]["both"] == 8
    refused(run("diff", a, d, "--pair-by", "own", "--map", "sample_id=own"), 2, "--pair-by and --map sample_id")


def test_pairs_of_another_length_are_another_text(tmp_path: Path) -> None:
    rows = [row([-0.1 * i, -1.0], sample_id=i) for i in range(1, 5)]
    a = parquet(tmp_path / "a.parquet", rows)
    b = parquet(tmp_path / "b.parquet", [*rows[:3], row([-0.5] * 3, [-0.5] * 3, sample_id=4), row(sample_id=9)])
    found = diffed(a, b)
    assert found["pairs"] == {"both": 4, "only_a": 0, "only_b": 1, "other_text": 1, "exact": True}
    said = " ".join(run("diff", a, b).out.split())
    assert "B differs from A to the bit in 1 of 4 rows of both (1 in B alone), in 3 of 9 tokens: it parts at" in said
    assert "; 1 row with other tokens from some place on." in said


def test_a_dump_against_itself_has_not_moved() -> None:
    found = diffed(BF16, BF16, "--min-effect", "0")
    assert not any(change["moved"] for change in found["metrics"].values())
    assert found["metrics"]["extreme_token_fraction"]["p_holm"] is None
    assert (found["bits"]["equal"], found["bits"]["differ"]) == (64, 0)
    assert "B is equal to A to the bit, in 64 rows and 5,493 tokens." in run("diff", BF16, BF16).out


def test_rounding_is_not_compared() -> None:
    found = diffed(FP32, FP32)
    assert [change["p_holm"] for change in found["metrics"].values()] == [None] * len(FAMILY)


def test_a_smaller_change_than_asked_for_has_not_moved() -> None:
    moved = [diffed(BF16, INT8, "--min-effect", share)["metrics"]["k3_kl"]["moved"] for share in ("2.4", "2.5")]
    assert moved == [True, False]
    assert "too small" in run("diff", BF16, INT8, "--min-effect", "9").out
    refused(run("diff", BF16, INT8, "--min-effect", "nan"), 2, "min-effect")


def test_saved_totals_are_compared_like_their_dumps(tmp_path: Path) -> None:
    paths = [str(tmp_path / "a.rlcorr"), str(tmp_path / "b.rlcorr")]
    for dump, path in zip((BF16, INT8), paths, strict=True):
        assert run("analyze", dump, "--group-by", "step", "--preset", "token_is", "-o", path).status == 0
    of_dumps, of_totals, mixed = diffed(BF16, INT8), diffed(*paths), diffed(BF16, paths[1])
    assert of_dumps["metrics"] == of_totals["metrics"] == mixed["metrics"]
    assert of_dumps["pairs"] == of_totals["pairs"] == mixed["pairs"]
    refused(run("diff", *paths, "--seed", "3"), 2, "a.rlcorr was drawn with seed 0, not 3")


@pytest.mark.full
def test_saved_totals_are_compared_group_by_group_like_their_dumps(tmp_path: Path) -> None:
    table, by = pq.read_table(STEPS), ("--group-by", "group_id", "--all")
    dumps, totals = ([str(tmp_path / f"{name}.{suffix}") for name in "ab"] for suffix in ("parquet", "rlcorr"))
    for dump, path, share in zip(dumps, totals, (1, 2), strict=True):
        rows = table.take([i for i in range(len(table)) if i % 3 < share])
        pq.write_table(rows, dump)
        # Weights of a training batch each: what is drawn is of the group, whatever its batches.
        batches = ("--is", "token", "--normalize", "batch", "--batch-by", "step")
        assert run("analyze", dump, *by[:2], *batches, "-o", path).status == 0
    of_dumps = diffed(*dumps, *by)
    assert len(of_dumps["groups"]) == 8
    assert_close(diffed(dumps[0], totals[1], *by), of_dumps)
    assert_close(diffed(*totals, *by), of_dumps)
    # A file of finer groups is one of coarser, and of none.
    finer = [path.replace(".rlcorr", "2.rlcorr") for path in totals]
    for dump, path in zip(dumps, finer, strict=True):
        assert run("analyze", dump, "--group-by", "step", *by[:2], "-o", path).status == 0
    assert_close(diffed(*finer, *by), of_dumps)
    assert diffed(*finer)["groups"] == []
    refused(run("diff", *finer, "--group-by", "source"), 2, "a2.rlcorr: --group-by source: these totals are grouped by")


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Two comparisons are the same to rounding, beside the plan's own numbers that totals may have."""
    assert [group["key"] for group in found["groups"]] == [group["key"] for group in expected["groups"]]
    for a, b in zip((found, *found["groups"]), (expected, *expected["groups"]), strict=True):
        for part in ("metrics", "not_tested"):
            assert a[part].keys() >= b[part].keys()
            for name, change in b[part].items():
                for field, value in change.items():
                    same = pytest.approx(value, rel=1e-6, abs=1e-12) if isinstance(value, float) else value
                    assert a[part][name][field] == same, (name, field)


def test_parts_that_were_merged_are_compared_group_by_group(tmp_path: Path) -> None:
    table, parts = pq.read_table(STEPS), [str(tmp_path / f"{i}.rlcorr") for i in range(3)]
    for i, path in enumerate(parts):
        pq.write_table(table.slice(100 * i, 100 if i < 2 else 120), tmp_path / f"{i}.parquet")
        assert run("analyze", str(tmp_path / f"{i}.parquet"), "--group-by", "step", "-o", path).status == 0
    merged = str(tmp_path / "merged.rlcorr")
    assert run("analyze", *parts, "-o", merged).status == 0
    by = ("--group-by", "step", "--all")
    expected = diffed(BF16, STEPS, *by)
    assert [group["key"] for group in expected["groups"]] == [{"step": 0}]
    assert_close(diffed(BF16, merged, *by), expected)


def test_modes_and_settings_are_not_mixed(tmp_path: Path) -> None:
    bypass, other = str(tmp_path / "bypass.rlcorr"), str(tmp_path / "other.rlcorr")
    mapped = ("--mode", "bypass", "--map", "current_log_probs=old_log_probs")
    assert run("analyze", BF16, *mapped, "-o", bypass).status == 0
    assert run("analyze", BF16, "--extreme-ratio", "3", "-o", other).status == 0
    decoupled = str(tmp_path / "decoupled.rlcorr")
    assert run("analyze", BF16, "-o", decoupled).status == 0
    refused(run("diff", decoupled, bypass), 2, "bypass.rlcorr is of bypass mode, and decoupled mode is compared")
    refused(run("diff", BF16, bypass, "--mode", "decoupled"), 2, "bypass.rlcorr is of bypass mode")
    refused(run("diff", BF16, bypass), 2, "bypass.rlcorr is of bypass mode, and", "has no current_log_probs")
    refused(run("diff", BF16, other), 2, "extreme_ratio is 2", "and 3 in")
    assert diffed(bypass, bypass)["metrics"]["k3_kl"]["change"] == 1


def test_groups_are_tested_together(rescored: Path, tmp_path: Path) -> None:
    a, b = str(rescored / "a.parquet"), str(rescored / "b.parquet")
    alone, found = diffed(a, b), diffed(a, b, "--group-by", "group_id")
    assert len(found["groups"]) == 8
    assert found["groups"][0]["key"] == {"group_id": "g0"}
    k3 = [each["metrics"]["k3_kl"] for each in (alone, found)]
    assert k3[0]["p"] == k3[1]["p"]
    tested = [c for part in (found, *found["groups"]) for c in part["metrics"].values() if c["p_holm"] is not None]
    least = min(tested, key=lambda change: change["p"])
    assert least["p_holm"] == pytest.approx(min(1, least["p"] * len(tested)))
    assert "group_id g7" in run("diff", a, b, "--group-by", "group_id").out
    of_one = pq.read_table(b).filter(pc.field("group_id") == "g0")
    pq.write_table(of_one, tmp_path / "one.parquet")
    less = diffed(a, str(tmp_path / "one.parquet"), "--group-by", "group_id")
    assert [group["key"] for group in less["groups"]] == [{"group_id": "g0"}]
    assert "A alone has 7 of the groups, not compared." in less["notes"]


def test_too_many_groups_are_refused(tmp_path: Path) -> None:
    rows = [row([-0.01 * i, -1.0], own=i) for i in range(201)]
    path = parquet(tmp_path / "d.parquet", rows)
    refused(run("diff", path, path, "--group-by", "own"), 2, "over 200 groups")


def test_totals_of_too_many_groups_keep_no_draws_of_any(tmp_path: Path) -> None:
    rows = [row([-0.01 * i, -1.0], own=i) for i in range(202)]
    paths = []
    for name, some in (("a", rows[:101]), ("b", rows[101:])):
        dump = parquet(tmp_path / f"{name}.parquet", some)
        paths.append(str(tmp_path / f"{name}.rlcorr"))
        assert run("analyze", dump, "--group-by", "own", "-o", paths[-1]).status == 0
    merged = str(tmp_path / "merged.rlcorr")
    assert run("analyze", *paths, "-o", merged).status == 0
    assert len(diffed(paths[0], paths[0], "--group-by", "own")["groups"]) == 101
    refused(run("diff", merged, paths[0], "--group-by", "own"), 2, "no draws by group: it has over 200 groups")
    assert diffed(merged, merged)["groups"] == []


def test_fail_on_moved_ends_with_1_and_tells_ci(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junit = tmp_path / "j.xml"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    ran = run("diff", BF16, INT8, "--fail-on", "moved", "--junit", str(junit))
    assert ran.status == 1
    assert "::error title=rlcorr diff%3A k3_kl%2C whole dump::whole dump: k3_kl is 0.00114 in A" in ran.err
    suite = ET.parse(junit).getroot()[0]
    assert suite.get("name") == "rlcorr diff"
    assert (suite.get("tests"), suite.get("failures")) == ("6", "3")
    assert run("diff", BF16, BF16, "--fail-on", "moved", "--junit", str(junit)).status == 0
    warned = run("diff", BF16, INT8)
    assert warned.status == 0
    assert "::warning title=rlcorr diff%3A k3_kl" in warned.err
    refused(run("diff", BF16, INT8, "--fail-on", "kl"), 2, "--fail-on must be one of moved")


@pytest.mark.full
def test_every_form_is_written(tmp_path: Path) -> None:
    forms = [str(tmp_path / f"d{suffix}") for suffix in (".json", ".md", ".html", ".csv", ".png", ".svg", ".pdf")]
    args = [part for form in forms for part in ("-o", form)]
    ran = run("diff", BF16, INT8, "--all", "--group-by", "group_id", *args)
    assert (ran.status, ran.err) == (0, "".join(f"Wrote {form}.\n" for form in forms))
    assert json.loads(Path(forms[0]).read_bytes())["metrics"] == diffed(BF16, INT8, "--group-by", "group_id")["metrics"]
    assert "| k3\\_kl |" in Path(forms[1]).read_text()
    assert "B is farther apart" in Path(forms[2]).read_text()
    table = Path(forms[3]).read_text().splitlines()
    assert table[0].startswith("group_id,metric,a,b,scale,change")
    assert len(table) == 1 + 9 * len(METRICS)
    assert b"Ratio (B / A)" in Path(forms[5]).read_bytes()
    refused(run("diff", BF16, INT8, "-o", str(tmp_path / "d.txt")), 2, "d.txt: it is written as .json")
    refused(run("diff", FP32, FP32, "-o", str(tmp_path / "e.png")), 3, "nothing to draw")
    assert not (tmp_path / "e.png").exists()


def test_what_voids_one_side_is_said(tmp_path: Path) -> None:
    table = pq.read_table(BF16)
    place = table.schema.get_field_index("old_log_probs")
    copy = tmp_path / "copy.parquet"
    pq.write_table(table.set_column(place, "old_log_probs", table["rollout_log_probs"]), copy)
    found = diffed(BF16, str(copy))
    assert (found["a"]["story"]["effect"], found["b"]["story"]["first"]) == ("none", "bypass_copy")
    assert "  ? B: bypass_copy: " in run("diff", BF16, str(copy)).out


def test_of_a_vast_change_both_values_are_said() -> None:
    said = " ".join(run("diff", FP32, BF16).out.split())
    assert "B is farther apart: k3_kl is 0.00114, A's is 6.85e-12." in said
    gate = " ".join(run("diff", FP32, BF16, "--fail-on", "moved").out.split())
    assert "times as large" not in gate


def test_holm_multiplies_the_smallest_by_all_and_never_falls() -> None:
    adjusted = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": None})
    assert adjusted == {"a": pytest.approx(0.03), "b": pytest.approx(0.06), "c": pytest.approx(0.06)}


@pytest.mark.full
def test_chance_seldom_moves_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    from null_pairs import false_alarms

    alarms = false_alarms(range(24))
    assert sum(moved for moved, _ in alarms) <= 3
    assert sum(single for _, single in alarms) >= 2


def test_errors_on_the_rows_column_speak_of_by(tmp_path: Path) -> None:
    refused(run("diff", BF16, BF16, "--pair-by", "foo"), 2, "--pair-by foo: there is no column 'foo'.")
    ran = run("diff", BF16, BF16, "--pair-by", "response_mask")
    refused(ran, 3, "response_mask", "name the rows' own with --pair-by COLUMN.")


def test_no_number_is_cut_where_changes_are_huge() -> None:
    ran = run("diff", FP32, INT8)
    assert max(map(len, ran.out.splitlines())) <= 80
    assert "…" not in ran.out
    assert "Not shown at this width: 95%" in ran.out


def test_a_single_pair_is_one_row(tmp_path: Path) -> None:
    many = parquet(tmp_path / "m.parquet", [row(sample_id=i) for i in range(30)])
    one = parquet(tmp_path / "o.parquet", [row(sample_id=3)])
    assert "B is equal to A to the bit, in 1 row of both (29 in B alone) and 2 tokens." in " ".join(
        run("diff", one, many).out.split()
    )


def test_a_change_whose_spread_float64_does_not_hold_has_no_interval(tmp_path: Path) -> None:
    """k3_kl_reverse of a token at -400 is e^400, and the squares of such numbers are infinite."""
    near = [row([-1.0, -i / 8], [-1.0, -i / 8]) for i in range(12)]
    far = [row([-1.0, -i / 8], [-401.0 if i == 3 else -1.5, -1.25 - i / 64]) for i in range(12)]
    a, b = (parquet(tmp_path / f"{name}.parquet", rows) for name, rows in (("near", near), ("far", far)))
    found = diffed(a, b, "--all")
    change = found["not_tested"]["k3_kl_reverse"]
    assert change["b"] > 1e160
    assert (change["change"], change["low"], change["high"]) == (None, None, None)
    assert found["not_tested"]["log_ratio_std"]["low"] is not None
