"""`rlcorr inspect --row`, `--worst`, `--where`: rows token by token, with their text."""

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hostile_tokens import HOSTILE
from running import BF16, STEPS, jsonl, parquet, refused, row, run, run_process

TOKENIZER = str(Path(BF16).with_name("tokenizer.json"))
GAP = {"rollout_log_probs": [-1.0, -2.0, -1.0], "old_log_probs": [-1.0, -2.5, -3.0]}


def rows_of(*args: str) -> list[dict[str, Any]]:
    return run("inspect", *args, "--json").json["rows"]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, list[dict[str, Any]]]:
    """Real rows in small row groups, one of them without a valid token."""
    table = pq.read_table(STEPS)
    path = tmp_path_factory.mktemp("rows") / "d.parquet"
    pq.write_table(table, path, row_group_size=37)
    return str(path), table.to_pylist()


def test_the_worst_rows_are_those_of_a_full_sort(many: tuple[str, list[dict[str, Any]]]) -> None:
    path, rows = many
    values = [np.abs(np.array(r["old_log_probs"]) - np.array(r["rollout_log_probs"])).max() for r in rows]
    order = np.argsort(-np.array(values), kind="stable")[:5]
    for more in ((), ("--batch-tokens", "500"), ("--engine", "threads", "--workers", "3")):
        found = rows_of(path, "--worst", "5", *more)
        assert [one["facts"]["sample_id"] for one in found] == [rows[i]["sample_id"] for i in order]
        assert [one["value"] for one in found] == pytest.approx([values[i] for i in order], rel=1e-9)
    assert found[0]["place"].endswith(f"d.parquet, row {order[0]} (0-based)")


@pytest.mark.parametrize("form", [parquet, jsonl])
def test_a_condition_chooses_rows(form: Any, tmp_path: Path) -> None:
    rows = [row(sample_id=f"s{i}", global_step=i % 3, worker=None if i == 4 else f"w{i % 2}", **GAP) for i in range(9)]
    path = form(tmp_path / f"d.{form.__name__}", rows)

    def ids(*args: str) -> list[str]:
        return [one["facts"]["sample_id"] for one in rows_of(path, *args)]

    assert ids("--where", "global_step = 1 and worker = 'w1'") == ["s1", "s7"]
    assert ids("--where", "step = 1") == ["s1", "s4", "s7"]
    assert ids("--where", "worker <> 'w1'") == ["s0", "s2", "s6", "s8"]
    assert ids("--where", "step > 0", "--worst", "2") == ["s1", "s2"]
    assert ids("--where", "1 = 1", "--worst", "1") == ["s0"]


@pytest.mark.parametrize(
    "sql",
    [
        "step IN (SELECT step FROM read_csv('{csv}'))",
        "EXISTS (SELECT 1 FROM read_csv('{csv}'))",
        "EXISTS(\n FROM read_csv('{csv}'))",
        "worker = $$'$$ OR EXISTS (FROM '{csv}') OR worker = $$'$$",
        "step > (/* a */ FROM read_csv('{csv}'))",
        "step IN (WITH t AS (FROM read_parquet('{csv}')) TABLE t)",
        "step IN (VALUES (1))",
        "worker = 'it''s' OR step = (\u017felect max(a) FROM scan_csv('{csv}'))",
        "worker = r'a\\' OR step IN (SELECT a FROM '{csv}') OR worker = '",
        "read_csv('{csv}')",
    ],
)
def test_a_condition_opens_no_file(sql: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a_secret\n1\n")
    ran = run("inspect", BF16, "--worst", "1", "--where", sql.format(csv=tmp_path / "a.csv"))
    refused(ran, 2, "--where")
    assert "a_secret" not in ran.err


@pytest.mark.parametrize(
    "sql", ["sample_id <> 'select (from x)'", '"step" IS DISTINCT FROM 1', "response <> 'it''s -- (from) C:'"]
)
def test_words_of_queries_may_stand_in_a_condition(sql: str) -> None:
    assert run("inspect", BF16, "--worst", "1", "--where", sql).status == 0


def test_a_row_token_by_token_with_what_the_plan_says() -> None:
    plan = ("--is", "token:,1.02", "--rs", "k3.token:,0.001", "--rs", "ratio.seq_mean:0.999,1.001")
    given = pq.read_table(BF16).slice(7, 1).to_pylist()[0]
    (found,) = rows_of(BF16, "--row", given["sample_id"], "--tokenizer", TOKENIZER, *plan)
    assert found["place"].endswith("row 7 (0-based)")
    assert found["texts"] == {"prompt": given["prompt"], "response": given["response"]}
    assert found["tokens"] == given["response_token_ids"]
    assert "".join(found["text"]) == given["response"]
    assert found["log_probs"]["old_log_probs"] == given["old_log_probs"]
    logs = np.array(given["old_log_probs"]) - np.array(given["rollout_log_probs"])
    assert found["log_ratios"] == pytest.approx(logs.tolist(), rel=1e-12)
    assert found["weights"] == pytest.approx(np.minimum(np.exp(logs), 1.02).tolist(), rel=1e-9)
    token, sequence = found["rejections"]
    assert token["keep"] == (np.expm1(logs) - logs <= 0.001).tolist()
    assert not all(token["keep"])
    assert sequence["value"] == pytest.approx(math.exp(logs.mean()), rel=1e-9)
    assert sequence["keep"] == [0.999 <= math.exp(logs.mean()) <= 1.001] * len(logs)


def test_several_rows_are_shown_in_the_order_that_was_asked_for() -> None:
    found = rows_of(BF16, "--row", "s003", "--row", "7", "--row", "s001")
    assert [one["facts"]["sample_id"] for one in found] == ["s003", "s007", "s001"]


@pytest.mark.parametrize("width", [80, 120])
def test_the_terminal_marks_far_tokens_and_lists_them(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    ran = run("inspect", STEPS, "--worst", "3", "--tokenizer", TOKENIZER)
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= width
    says = "The 3 worst rows by gap (the largest |log-ratio| of a token). The furthest token is '<|im_end|>'"
    assert " ".join(ran.out.split()).startswith(says)
    assert any("[#11 <|im_end|>]" in line for line in lines)
    (told,) = (line.split() for line in lines if line.startswith("  11  '<|im_end|>'"))
    assert {"-3.114", "-8.285", "-5.170"} <= set(told)


def test_without_a_tokenizer_ids_are_shown_and_what_gives_text_is_said() -> None:
    out = run("inspect", BF16, "--row", "s008").out
    assert "[#27 433]" in out
    assert "Token ids are shown: --tokenizer FILE gives their text." in " ".join(out.split())


def test_a_long_row_is_folded_around_its_far_tokens(tmp_path: Path) -> None:
    n, far = 1000, 567
    train = [-1.0 - 0.5 * (i == far) for i in range(n)]
    words = [f"word{i} " for i in range(n)]
    one = row(sample_id="a", rollout_log_probs=[-1.0] * n, old_log_probs=train, response_tokens=words)
    out = run("inspect", parquet(tmp_path / "d.parquet", [one]), "--row", "a").out
    assert len(out.splitlines()) < 25
    text = " ".join(out.split())
    assert "word0 " in text
    assert "word999 " in text
    assert f"word566 [#{far} word{far}] word568" in text
    assert "word100 " not in text
    n_folded = sum(int(part.split()[0].replace(",", "")) for part in text.split("(... ")[1:])
    assert n_folded == n - len(set(re.findall(r"word\d+", text)))


def test_masked_tokens_and_rejected_ones_are_marked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = row(sample_id="a", response_tokens=["a", " b", " c"], response_mask=[1, 0, 1], **GAP)
    out = run("inspect", parquet(tmp_path / "d.parquet", [one]), "--row", "a", "--rs", "k3.token:,0.1").out
    assert "a {b} ~[#2 c]~" in out
    monkeypatch.setenv("FORCE_COLOR", "1")
    colours = run("inspect", str(tmp_path / "d.parquet"), "--row", "a", "--rs", "k3.token:,0.1").out
    assert "\x1b[2m b" in colours
    assert re.search(r"\x1b\[[\d;]*9[\d;]*m c", colours), colours


def test_text_comes_from_strings_before_a_tokenizer(tmp_path: Path) -> None:
    one = row(sample_id="a", tokens=["Ġone", "å", "Ń"], response_token_ids=[33, 34, 35], **GAP)
    path = parquet(tmp_path / "d.parquet", [one])
    for more in ((), ("--tokenizer", TOKENIZER)):
        (found,) = rows_of(path, "--row", "a", *more)
        assert found["text"][0] == " one"
    assert "one[#1 <E5>][#2 <AD>]" in run("inspect", path, "--row", "a").out


def test_a_tokenizer_that_is_not_the_dumps_is_noticed(tmp_path: Path) -> None:
    one = row(sample_id="a", response_token_ids=[33, 34, 35], response="A cat flew over the house.", **GAP)
    found = run("inspect", parquet(tmp_path / "d.parquet", [one]), "--row", "a", "--tokenizer", TOKENIZER)
    assert "Is this the tokenizer that the dump was made with?" in " ".join(found.out.split())


def test_ids_that_a_tokenizer_has_not_show_themselves(tmp_path: Path) -> None:
    one = row(sample_id="a", response_token_ids=[33, 49151, 35], **GAP)
    path = parquet(tmp_path / "d.parquet", [one])
    found = run("inspect", path, "--row", "a", "--tokenizer", TOKENIZER)
    assert "has no token of 1 id of a row, such as 49151. Is this the tokenizer" in " ".join(found.out.split())
    assert "[#1 <id 49151>]" in found.out
    assert rows_of(path, "--row", "a", "--tokenizer", TOKENIZER)[0]["text"] == ["1", "", "3"]


def test_a_tokenizer_is_named_as_on_the_hub_where_its_cache_has_it(tmp_path: Path) -> None:
    commit = "0123456789" * 4
    cached = tmp_path / "home" / "hub" / "models--acme--tiny"
    for path, content in (("refs/main", commit), (f"snapshots/{commit}/tokenizer.json", Path(TOKENIZER).read_text())):
        (cached / path).parent.mkdir(parents=True)
        (cached / path).write_text(content)
    env = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_OFFLINE": "1", "COLUMNS": "80"}
    args = ("inspect", STEPS, "--row", "s4-s005", "--tokenizer")
    ran = run_process(*args, "acme/tiny", env=env)
    assert "[#11 <|im_end|>]" in ran.out, ran.err
    refused(
        run_process(*args, "acme/other", env=env),
        2,
        "no file acme/other, and the Hugging Face Hub's cache (HF_HOME) has",
        "HF_HUB_OFFLINE",
    )


def test_rows_are_written_in_every_form(tmp_path: Path) -> None:
    files = [tmp_path / f"rows.{suffix}" for suffix in ("json", "csv", "md", "html")]
    args = [part for path in files for part in ("-o", str(path))]
    ran = run("inspect", STEPS, "--worst", "2", "--tokenizer", TOKENIZER, *args)
    assert ran.status == 0, ran.err
    found, lines, markdown, page = (path.read_text() for path in files)
    assert len(json.loads(found)["rows"]) == 2
    assert len(lines.splitlines()) == 1 + sum(len(one["valid"]) for one in json.loads(found)["rows"])
    assert "s4\\-s005" in markdown
    assert "s4-s005" in page


@pytest.mark.parametrize("colours", ["", "1"])
def test_nothing_in_a_token_escapes_on_a_terminal(
    colours: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", colours)
    n = len(HOSTILE)
    one = row(
        sample_id="a",
        rollout_log_probs=[-1.0] * n,
        old_log_probs=[-1.0 - 0.01 * i for i in range(n)],
        tokens=[*HOSTILE],
        prompt="".join(HOSTILE),
        note="".join(HOSTILE),
    )
    for i in range(0, n, 5):  # each of them once among the far tokens, which are listed
        one["old_log_probs"] = [-9.0 if i <= at < i + 5 else -1.0 for at in range(n)]
        path = tmp_path / "d.jsonl"
        path.write_text(json.dumps(one) + "\n")
        ran = run("inspect", str(path), "--row", "a", "-o", str(tmp_path / "t.md"), "--overwrite")
        assert ran.status == 0, ran.err
        plain = re.sub(r"\x1b\[[\d;]*m", "", ran.out) if colours else ran.out
        assert [c for c in plain if not c.isprintable() and c != "\n"] == []
        assert not re.search(r"^\s*::\w|#\w*#\[|^##", plain, re.MULTILINE)
        markdown = (tmp_path / "t.md").read_text()
        assert [c for c in markdown if not c.isprintable() and c != "\n"] == []


def test_every_column_of_log_probs_says_whose_it_is_and_what_was_not_rejected_takes_no_room() -> None:
    ran = run_process("inspect", BF16, "--worst", "1", "--preset", "token_rs", env={"COLUMNS": "100"})
    (heading,) = (line for line in ran.out.splitlines() if line.startswith("  #  "))
    assert " ".join(heading.split()) == "# id rollout logp train logp rollout p log-ratio ratio"
