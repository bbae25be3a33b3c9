"""`rlcorr inspect --repro`: the rows that show a fault, cut, and requests that engines take."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from limits import LIMIT_SECONDS
from running import BF16, Ran, run

import rlcorr_cli
from rlcorr_cli.runs.repro import FIRST_FAR, MOST_ROWS
from rlcorr_cli.show.numbers import signed

Row = dict[str, Any]
N = 80
"""Tokens of each row, so that faults of a kind are equal."""
KEPT = ("sample_id", "group_id", "prompt", "response")
CAUSES = Path(__file__).parents[1] / "diagnosis" / "causes"
TOKENIZER = str(Path(BF16).with_name("tokenizer.json"))


def clean() -> list[Row]:
    """Real rows of one length, with ids of their prompts."""
    rows = [row for row in pq.read_table(BF16).to_pylist() if len(row["response_token_ids"]) >= N]
    lists = ("response_token_ids", "response_mask", "rollout_log_probs", "old_log_probs")
    return [
        {
            **{name: row[name] for name in KEPT},
            **{name: list(row[name][:N]) for name in lists},
            "prompt_token_ids": [100 + i, *range(7, 7 + i % 5)],
        }
        for i, row in enumerate(rows)
    ]


def lower(row: Row, at: list[int], by: float) -> list[int]:
    for i in at:
        row["rollout_log_probs"][i] -= by
    return at


def glitch(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """Two tokens of each row, anywhere."""
    return [lower(row, sorted(rng.choice(N, 2, replace=False).tolist()), 6.0) for row in rows]


def first_token(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    return [lower(row, [0], 8.0) for row in rows]


def last_token(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    return [lower(row, [N - 1], 8.0) for row in rows]


def after_tool(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """The token after a tool's output, which is masked."""
    for row in rows:
        row["response_mask"][30:40] = [0] * 10
    return [lower(row, [40], 8.0) for row in rows]


def cache(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """Twelve tokens in a row, as a block of a KV cache would make it."""
    return [lower(row, [*range(start, start + 12)], 3.0) for row in rows for start in [int(rng.integers(5, 60))]]


def mispaired(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """Each row has the rollout's log-probs of the next one."""
    columns = [row["rollout_log_probs"] for row in rows]
    for row, column in zip(rows, [*columns[1:], columns[0]], strict=True):
        row["rollout_log_probs"] = column
    return [[*range(N)] for _ in rows]


def slipped(rows: list[Row], rng: np.random.Generator) -> list[list[int]]:
    """The rollout's log-probs stand a token later from some token on."""
    for row in rows:
        row["rollout_log_probs"] = [*row["rollout_log_probs"][:20], *row["rollout_log_probs"][19:-1]]
    return [[*range(20, N)] for _ in rows]


Fault = Callable[[list[Row], np.random.Generator], list[list[int]]]
FAULTS: list[tuple[Fault, int]] = [
    *((glitch, n) for n in (1, 2, 5, 9, 10)),
    *((last_token, n) for n in (4, 10)),
    *((first_token, n) for n in (6, 10)),
    *((after_tool, n) for n in (3, 5, 10)),
    *((cache, n) for n in (1, 5, 10)),
    *((mispaired, n) for n in (3, 6, 10)),
    *((slipped, n) for n in (4, 10)),
]
"""Twenty dumps: a fault, and in how many rows it is."""


@dataclass(frozen=True)
class Planted:
    """A dump with a fault: its file, its rows, and the faulty tokens by sample_id."""

    path: str
    rows: list[Row]
    at: dict[str, list[int]]

    def gap(self, tokens: dict[str, list[int]] | None = None) -> float:
        """The sum of squared log-ratios, of all valid tokens or of some."""
        total = 0.0
        for row in self.rows:
            squares = (np.array(row["old_log_probs"]) - row["rollout_log_probs"]) ** 2 * row["response_mask"]
            total += float(squares.sum() if tokens is None else squares[tokens.get(row["sample_id"], [])].sum())
        return total


def planted(fault: Fault, n: int, folder: Path) -> Planted:
    rng, rows = np.random.default_rng(n), clean()
    faulty = [rows[i] for i in rng.choice(len(rows), n, replace=False).tolist()]
    at = dict(zip([row["sample_id"] for row in faulty], fault(faulty, rng), strict=True))
    path = folder / "dump.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return Planted(str(path), rows, at)


def written(dump: str, place: Path, *args: str) -> list[Row]:
    """rows.jsonl of a repro."""
    ran = run("inspect", dump, "--repro", str(place), *args)
    assert ran.status == 0, ran.err
    return lines_of(place / "rows.jsonl")


def refused(dump: str, *args: str) -> tuple[str, int]:
    """Why it is refused, and the status; nothing is printed but that, or written where it was to be."""
    ran = run("inspect", dump, *args, "--json")
    error = json.loads(ran.err)["error"]
    assert (ran.out, ran.status) == ("", error["exit_status"])
    return f"{error['message']} {error['hint']}", ran.status


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("fault", "n"), FAULTS, ids=[f"{fault.__name__}-{n}" for fault, n in FAULTS])
def test_a_few_cut_rows_show_a_planted_fault_alone(fault: Fault, n: int, tmp_path: Path) -> None:
    dump = planted(fault, n, tmp_path)
    rows = written(dump.path, tmp_path / "report")
    names = [row["sample_id"] for row in rows]
    assert 1 <= len(rows) <= MOST_ROWS
    assert {*names} <= dump.at.keys()
    whole, faulty = {name: [*range(N)] for name in names}, {name: dump.at[name] for name in names}
    assert dump.gap(faulty) >= dump.gap(dump.at) / 2  # of ten equal rows, five carry half
    assert n == 10 or dump.gap(whole) >= dump.gap() / 2
    squares = dict[bool, float]()
    for row in rows:
        at = dump.at[row["sample_id"]]
        assert {*row["far"]} <= {*at}, "a far token is a faulty one"
        assert row["far"][-1] == len(row["response_token_ids"]) - 1, "the cut is after the last of them"
        assert len(row["far"]) <= FIRST_FAR
        for i, (logged, training) in enumerate(zip(row["rollout_log_probs"], row["old_log_probs"], strict=True)):
            if logged is not None:
                squares[i in at] = squares.get(i in at, 0.0) + (training - logged) ** 2
    assert squares[True] >= 0.95 * sum(squares.values()), "nothing else is seen in what is left"


VLLM = {
    "/inference/v1/generate": {"token_ids": list, "sampling_params": dict},
    "/v1/completions": {"prompt": list, "max_tokens": int, "temperature": float, "prompt_logprobs": int},
}
SGLANG = {
    "/generate": {"input_ids": list, "sampling_params": dict, "return_logprob": bool, "logprob_start_len": int},
}
PARAMETERS = {
    "max_tokens": int,
    "temperature": float,
    "logprobs": int,
    "trace_decode_token_ids": list,
    "max_new_tokens": int,
}
"""Fields that the engines document (vLLM 0.33: GenerateRequest, CompletionRequest, SamplingParams; SGLang 0.5.23:
GenerateReqInput) -> their types; these servers take no others."""


@dataclass
class Engine:
    """What a server answers: the log-prob of each token after those before it.  replays: whether trace replay is on."""

    of: dict[tuple[int, ...], float]
    replays: bool = True

    def logp(self, ids: list[int], end: int) -> float:
        return self.of.get(tuple(ids[:end]), -1.5)

    def answer(self, path: str, body: Any) -> Any:
        """As vLLM 0.33 and SGLang 0.5.23 answer; a ValueError of what they refuse."""
        known = (VLLM | SGLANG)[path]
        parameters = body.get("sampling_params", {})
        if {*body} - {*known} or {*parameters} - {*PARAMETERS}:
            raise ValueError(f"unknown fields in {body}")
        if not all(isinstance(value, (known | PARAMETERS)[name]) for name, value in (body | parameters).items()):
            raise ValueError(f"wrong types in {body}")
        if path == "/inference/v1/generate":
            prompt, trace = body["token_ids"], parameters["trace_decode_token_ids"]
            tokens = (trace if self.replays else [9] * len(trace))[: parameters.get("max_tokens", 16)]
            logps = [self.logp(prompt + tokens, len(prompt) + i + 1) for i in range(len(tokens))]
            content = [{"token_id": t, "logprob": logp, "rank": 1} for t, logp in zip(tokens, logps, strict=True)]
            return {"choices": [{"index": 0, "token_ids": tokens, "logprobs": {"content": content}}]}
        if path == "/v1/completions":
            ids = body["prompt"]
            scored = [{str(ids[i]): {"logprob": self.logp(ids, i + 1), "rank": 1}} for i in range(1, len(ids))]
            return {"choices": [{"index": 0, "text": "", "prompt_logprobs": [None, *scored]}]}
        ids, start = body["input_ids"], body["logprob_start_len"]
        scored = [[self.logp(ids, i + 1) if i > start else None, ids[i], None] for i in range(start, len(ids))]
        return {"text": "", "meta_info": {"input_token_logprobs": scored, "output_token_logprobs": [[-1.0, 9, None]]}}


@contextmanager
def serving(engine: Engine) -> Iterator[str]:
    """The URL of a server on this machine that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                status, answer = 200, engine.answer(self.path, body)
            except (ValueError, KeyError) as error:
                status, answer = 400, {"error": {"message": f"refused: {error}"}}
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join(LIMIT_SECONDS)


def engine_of(rows: list[Row], column: str) -> Engine:
    """The engine whose log-probs a column of rows.jsonl has."""
    of: dict[tuple[int, ...], float] = {}
    for row in rows:
        prompt, response = row["prompt_token_ids"], row["response_token_ids"]
        of |= {tuple(prompt + response[: i + 1]): logp for i, logp in enumerate(row[column]) if logp is not None}
    return Engine(of)


def sent(place: Path, kind: str, url: str) -> Ran:
    """`python send.py`, by an interpreter that has the standard library alone."""
    command = [sys.executable, "-I", "-S", str(place / "send.py"), kind, "--url", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    return Ran(done.returncode, done.stdout, done.stderr)


KINDS = ("vllm_decode", "vllm_prefill", "sglang_prefill")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("column", "ends"), [("rollout_log_probs", slice(5, 6)), ("old_log_probs", slice(6, 7))])
def test_the_script_sends_requests_that_engines_take_and_prints_each_difference(
    kind: str, column: str, ends: slice, tmp_path: Path
) -> None:
    dump = planted(after_tool, 3, tmp_path)
    rows = written(dump.path, tmp_path / "report")
    with serving(engine_of(rows, column)) as url:
        ran = sent(tmp_path / "report", kind, url + "/")
    assert (ran.status, ran.err) == (0, "")
    lines = ran.out.splitlines()
    tokens = [line.replace("*", " ").split() for line in lines if not line.startswith("row") and "logged" not in line]
    assert len(tokens) == sum(len(row["response_token_ids"]) for row in rows)
    assert sum(line.startswith("*") for line in lines) == sum(len(row["far"]) for row in rows) > 0
    each = iter(tokens)
    for row in rows:
        values = zip(row["response_token_ids"], row["rollout_log_probs"], row["old_log_probs"], strict=True)
        for place, (token, logged, training) in enumerate(values):
            now = row[column][place]
            numbers = [place, token, *(f"{x:.4f}" if x is not None else "-" for x in (logged, training))]
            numbers.append(f"{-1.5 if now is None else now:.4f}")
            numbers += ["-", "-"] if now is None else [f"{now - logged:+.4f}", f"{now - training:+.4f}"]
            found = next(each)
            assert found == [str(number) for number in numbers]
            assert now is None or found[ends] == ["+0.0000"]


def test_the_script_says_that_an_engine_does_not_replay_or_refuses(tmp_path: Path) -> None:
    rows = written(planted(glitch, 1, tmp_path).path, tmp_path / "report")
    engine = engine_of(rows, "old_log_probs")
    engine.replays = False
    with serving(engine) as url:
        ran = sent(tmp_path / "report", "vllm_decode", url)
        assert ran.status == 1
        assert "--enable-trace-replay" in ran.err
        (tmp_path / "report" / "vllm_prefill.jsonl").write_text(json.dumps({"prompt": [1], "odd": 1}) + "\n")
        ran = sent(tmp_path / "report", "vllm_prefill", url)
    assert ran.status == 1
    assert "refused: unknown fields" in ran.err
    assert "Traceback" not in ran.err
    ran = sent(tmp_path / "report", "sglang_prefill", url)  # nobody is there any more
    assert ran.status == 1
    assert "/generate: " in ran.err
    assert "Traceback" not in ran.err


def test_requests_are_valid_by_the_engines_own_schemas(tmp_path: Path) -> None:
    """Where they are installed, as they are where they run."""
    protocol = pytest.importorskip("vllm.entrypoints.scale_out.token_in_token_out.protocol")
    completion = pytest.importorskip("vllm.entrypoints.openai.completion.protocol")
    sglang = pytest.importorskip("sglang.srt.managers.io_struct")
    from pydantic import TypeAdapter

    place = tmp_path / "report"
    written(planted(glitch, 5, tmp_path).path, place)
    for decode, prefill, generate in zip(*(lines_of(place / f"{kind}.jsonl") for kind in KINDS), strict=True):
        trace = protocol.GenerateRequest.model_validate(decode).sampling_params.trace_decode_token_ids
        assert trace == decode["sampling_params"]["trace_decode_token_ids"]
        assert completion.CompletionRequest.model_validate(prefill).prompt == prefill["prompt"]
        assert TypeAdapter(sglang.GenerateReqInput).validate_python(generate).input_ids == generate["input_ids"]


def private(row: Row) -> Row:
    return {**row, "prompt": "a secret prompt", "response": "a secret answer", "reward": 0.25, "owner": "secret"}


def test_nothing_but_the_rows_ids_and_log_probs_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "secret"
    folder.mkdir()
    dump = planted(glitch, 2, folder)
    pq.write_table(pa.Table.from_pylist([private(row) for row in dump.rows]), dump.path)
    rows = written(dump.path, tmp_path / "report")
    columns = ("prompt_token_ids", "response_token_ids", "response_mask", "rollout_log_probs", "old_log_probs")
    assert all([*row] == ["sample_id", *columns, "far"] for row in rows)
    assert {path.name for path in (tmp_path / "report").iterdir()} == {
        *("rows.jsonl", "send.py", "issue.md"),
        *(f"{kind}.jsonl" for kind in KINDS),
    }
    files = [path.read_text() for path in (tmp_path / "report").iterdir()]
    others = [row["sample_id"] for row in dump.rows if row["sample_id"] not in {r["sample_id"] for r in rows}]
    assert not [text for text in files if "secret" in text or str(tmp_path) in text or any(o in text for o in others)]


def test_what_is_left_of_a_row_is_as_the_dump_has_it(tmp_path: Path) -> None:
    dump = planted(after_tool, 2, tmp_path)
    for row in written(dump.path, tmp_path / "report"):
        (whole,) = [each for each in dump.rows if each["sample_id"] == row["sample_id"]]
        n = len(row["response_token_ids"])
        assert row["prompt_token_ids"] == whole["prompt_token_ids"]
        assert all(row[name] == whole[name][:n] for name in ("response_token_ids", "response_mask"))
        for name in ("rollout_log_probs", "old_log_probs"):
            valid = zip(whole[name], whole["response_mask"], strict=True)
            assert row[name] == [x if counts else None for x, counts in valid][:n]


@pytest.mark.parametrize("fault", [glitch, after_tool, mispaired], ids=lambda fault: fault.__name__)
def test_the_rows_are_a_dump_of_the_same_far_tokens(fault: Fault, tmp_path: Path) -> None:
    dump = planted(fault, 3, tmp_path)
    rows = written(dump.path, tmp_path / "report")
    report = run("analyze", str(tmp_path / "report" / "rows.jsonl"), "--json").json
    assert report["counts"]["bad_rows"] == 0
    assert report["counts"]["sequences"] == len(rows)
    furthest = run("analyze", dump.path, "--json").json["metrics"]["logprob_abs_diff_max"]
    assert report["metrics"]["logprob_abs_diff_max"] >= furthest / 2


def test_texts_are_written_where_they_are_asked_for(tmp_path: Path) -> None:
    dump = planted(glitch, 2, tmp_path)
    rows = written(dump.path, tmp_path / "report", "--text", "--tokenizer", TOKENIZER)
    for row in rows:
        (whole,) = [each for each in dump.rows if each["sample_id"] == row["sample_id"]]
        assert row["prompt"] == whole["prompt"]
        assert whole["response"].startswith(row["response"])
        assert len(row["response"]) > len(row["response_token_ids"])
    (row, *_) = written(dump.path, tmp_path / "prompts", "--text")
    assert "prompt" in row
    assert "response" not in row
    ids = [{name: row[name] for name in row if name not in ("prompt", "response")} for row in dump.rows]
    pq.write_table(pa.Table.from_pylist(ids), dump.path)
    why, status = refused(dump.path, "--repro", str(tmp_path / "none"), "--text")
    assert (status, "the dump has ids alone. Add the model's --tokenizer FILE." in why) == (2, True)
    assert not (tmp_path / "none").exists()


def test_a_condition_narrows_the_choice(tmp_path: Path) -> None:
    dump = planted(glitch, 5, tmp_path)
    name = [*dump.at][-1]
    (row,) = written(dump.path, tmp_path / "report", "--where", f"sample_id = '{name}'")
    assert row["sample_id"] == name
    assert refused(dump.path, "--repro", str(tmp_path / "no"), "--where", "sample_id = 'x'")[0].startswith("No row")


@pytest.mark.parametrize(
    ("lacks", "says", "do"),
    [
        (["prompt_token_ids"], "no prompt_token_ids.", "their column: --map prompt=COLUMN."),
        (["response_token_ids"], "no response_token_ids.", "their column: --map response_token_ids=COLUMN."),
        (
            ["prompt_token_ids", "response_token_ids"],
            "no prompt_token_ids and response_token_ids.",
            "their column: --map prompt=COLUMN and --map response_token_ids=COLUMN.",
        ),
    ],
)
def test_a_dump_without_ids_is_refused_by_the_name_of_what_it_lacks(
    lacks: list[str], says: str, do: str, tmp_path: Path
) -> None:
    dump = planted(glitch, 2, tmp_path)
    pq.write_table(pq.read_table(dump.path).drop_columns(lacks), dump.path)
    why, status = refused(dump.path, "--repro", str(tmp_path / "r"))
    assert status == 3
    assert why.endswith(f"the dump has {says} Write the ids of the tokens beside their log-probs, or name {do}")
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("path", sorted(CAUSES.glob("*.parquet")), ids=lambda path: path.stem)
def test_dumps_without_ids_of_prompts_are_refused(path: Path, tmp_path: Path) -> None:
    why, _ = refused(str(path), "--repro", str(tmp_path / "r"))
    assert "the dump has no prompt_token_ids." in why


def test_columns_of_ids_may_have_other_names(tmp_path: Path) -> None:
    dump = planted(glitch, 2, tmp_path)
    expected = written(dump.path, tmp_path / "report")
    table = pq.read_table(dump.path)
    names = {"prompt_token_ids": "asked", "response_token_ids": "given"}
    pq.write_table(table.rename_columns([names.get(name, name) for name in table.column_names]), dump.path)
    maps = ("--map", "prompt=asked", "--map", "response_token_ids=given")
    assert written(dump.path, tmp_path / "mapped", *maps) == expected
    strings = pa.array([[str(i) for i in row["response_token_ids"]] for row in dump.rows])
    pq.write_table(table.append_column("response_tokens", strings), dump.path)
    assert written(dump.path, tmp_path / "beside", "--text")[0].items() > expected[0].items()


def test_rows_without_ids_of_all_tokens_are_passed_over_and_told(tmp_path: Path) -> None:
    dump = planted(glitch, 3, tmp_path)
    first, *others = [row["sample_id"] for row in written(dump.path, tmp_path / "report")]
    for row in dump.rows:
        if row["sample_id"] == first:
            row["prompt_token_ids"] = None
    pq.write_table(pa.Table.from_pylist(dump.rows), dump.path)
    result = run("inspect", dump.path, "--repro", str(tmp_path / "second"), "--json").json
    assert [row["facts"]["sample_id"] for row in result["rows"]][: len(others)] == others
    assert "Passed over: 1 row with a larger share, without ids of all tokens." in result["notes"]
    for row in dump.rows:
        row["response_token_ids"][0] = -1
    pq.write_table(pa.Table.from_pylist(dump.rows), dump.path)
    why, _ = refused(dump.path, "--repro", str(tmp_path / "third"))
    assert why.startswith("No row that differs has the ids of all its tokens.")


def test_a_directory_that_holds_files_is_never_written_to(tmp_path: Path) -> None:
    dump = planted(glitch, 2, tmp_path)
    place = tmp_path / "report"
    place.mkdir()
    written(dump.path, place)  # an empty one is
    (place / "issue.md").write_text("with versions")
    for more in ([], ["--overwrite", "-o", str(tmp_path / "x.json")]):
        why, status = refused(dump.path, "--repro", str(place), *more)
        assert status == 4
        assert why.endswith("report holds other files (issue.md). Name a new or empty directory.")
    assert (place / "issue.md").read_text() == "with versions"
    assert "is part of the dump" in refused(dump.path, "--repro", dump.path)[0]


def test_the_rows_do_not_depend_on_how_the_dump_is_read(tmp_path: Path) -> None:
    dump = planted(mispaired, 6, tmp_path)
    expected = written(dump.path, tmp_path / "report")
    pq.write_table(pq.read_table(dump.path), dump.path, row_group_size=5)
    for i, more in enumerate((("--batch-tokens", "100"), ("--engine", "processes", "--workers", "2"))):
        assert written(dump.path, tmp_path / str(i), *more) == expected
    lines = tmp_path / "dump.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in dump.rows))
    assert written(str(lines), tmp_path / "lines") == expected


def test_under_bypass_the_current_policy_is_trainings(tmp_path: Path) -> None:
    dump = planted(glitch, 1, tmp_path)
    for row in dump.rows:
        row["current_log_probs"], row["old_log_probs"] = row["old_log_probs"], row["rollout_log_probs"]
    pq.write_table(pa.Table.from_pylist(dump.rows), dump.path)
    (row,) = written(dump.path, tmp_path / "report", "--mode", "bypass")
    (whole,) = [each for each in dump.rows if each["sample_id"] == row["sample_id"]]
    assert row["old_log_probs"] == whole["current_log_probs"][: len(row["far"]) and row["far"][-1] + 1]
    assert refused(dump.path, "--repro", str(tmp_path / "no"))[0].startswith("No row differs")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--repro", "r", "--worst", "2"), "--repro chooses the rows itself"),
        (("--repro", "r", "--row", "s1"), "--repro chooses the rows itself"),
        (("--text",), "--text is for rows that are written"),
        (("--repro", ""), "--repro is empty"),
        (("--repro", "no/such/place"), "there is no directory no/such"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    args: tuple[str, ...], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dump = planted(glitch, 2, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert says in refused(dump.path, *args)[0]
    assert [path.name for path in tmp_path.iterdir()] == ["dump.parquet"]


def test_the_issue_names_the_fault_and_its_first_far_tokens(tmp_path: Path) -> None:
    dump = planted(mispaired, 6, tmp_path)
    result = rlcorr_cli.inspect(dump.path, repro=tmp_path / "report")
    issue = (tmp_path / "report" / "issue.md").read_text()
    assert all(sentence in issue for sentence in result.about[:-1])
    assert f"python {tmp_path / 'report'}/send.py" in result.about[-1]
    assert "mispaired_rows" in result.about[1]
    first = result.rows[0]
    logged, training = (first.log_probs[name][first.far[0]] for name in first.log_probs)
    cells = [1, len(first.prompt_ids or ()), first.n_tokens, first.far[0], (first.tokens or ())[first.far[0]]]
    numbers = [signed(logged), signed(training), signed(training - logged)]
    assert f"| {' | '.join(map(str, [*cells, *numbers]))} |" in issue
    assert "- engine and version, its command line:\n" in issue


def test_a_run_that_fails_leaves_nothing(tmp_path: Path) -> None:
    dump = planted(glitch, 2, tmp_path)
    why, _ = refused(dump.path, "--repro", str(tmp_path / "report"), "-o", str(tmp_path / "rows.png"))
    assert "nothing to draw" in why
    assert [path.name for path in tmp_path.iterdir()] == ["dump.parquet"]


def test_standard_input_is_refused_because_it_is_read_twice(tmp_path: Path) -> None:
    dump = planted(glitch, 1, tmp_path)
    lines = "".join(json.dumps(row) + "\n" for row in dump.rows)
    command = [sys.executable, "-m", "rlcorr_cli", "inspect", "-", "--repro", str(tmp_path / "report"), "--json"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
    assert done.returncode == 2
    assert "Save it to a file first." in done.stderr
    assert not (tmp_path / "report").exists()


def test_a_dump_without_a_difference_has_nothing_to_show(tmp_path: Path) -> None:
    dump = planted(glitch, 1, tmp_path)
    same = [{**row, "old_log_probs": row["rollout_log_probs"]} for row in dump.rows]
    pq.write_table(pa.Table.from_pylist(same), dump.path)
    assert refused(dump.path, "--repro", str(tmp_path / "report"))[0].startswith("No row differs")


def test_the_terminal_says_what_the_rows_hold_and_where_they_are(tmp_path: Path) -> None:
    dump = planted(glitch, 5, tmp_path)
    ran = run("inspect", dump.path, "--repro", str(tmp_path / "report"))
    words = " ".join(ran.out.split())
    share = (
        dump.gap({row["sample_id"]: [*range(N)] for row in lines_of(tmp_path / "report" / "rows.jsonl")}) / dump.gap()
    )
    assert f"{share:.0%} of the gap lies in 3 of {len(dump.rows)} rows" in words
    assert "a row ends with its first far tokens" in words
    assert ran.err == f"Wrote {tmp_path / 'report'}.\n"


def test_where_single_rows_are_at_fault_no_others_are_chosen(tmp_path: Path) -> None:
    dump = planted(mispaired, 5, tmp_path)
    other = next(row for row in dump.rows if row["sample_id"] not in dump.at)
    lower(other, [3, 50], 30.0)
    pq.write_table(pa.Table.from_pylist(dump.rows), dump.path)
    result = rlcorr_cli.inspect(dump.path, repro=tmp_path / "report")
    assert "mispaired_rows" in result.about[1]
    assert dump.gap({other["sample_id"]: [*range(N)]}) > max(dump.gap({name: [*range(N)]}) for name in dump.at)
    assert {row["sample_id"] for row in lines_of(tmp_path / "report" / "rows.jsonl")} <= dump.at.keys()


def test_what_is_shown_ends_where_the_row_is_cut(tmp_path: Path) -> None:
    dump = planted(after_tool, 3, tmp_path)
    for row in rlcorr_cli.inspect(dump.path, repro=tmp_path / "report").rows:
        assert row.n_tokens == len(row.valid) == len(row.tokens or ()) == row.far[-1] + 1
        assert len(row.log_ratios) == sum(row.valid)
        assert row.value == pytest.approx(sum(x * x for x in row.log_ratios) / dump.gap(), rel=1e-6)


def test_bad_rows_are_set_aside_once(tmp_path: Path) -> None:
    dump = planted(glitch, 2, tmp_path)
    expected = written(dump.path, tmp_path / "report")
    bad = {**dump.rows[0], "sample_id": "bad", "rollout_log_probs": [float("nan")] * N}
    pq.write_table(pa.Table.from_pylist([*dump.rows, bad]), dump.path)
    aside = tmp_path / "bad.parquet"
    assert written(dump.path, tmp_path / "again", "--quarantine", str(aside)) == expected
    assert pq.read_table(aside).num_rows == 1
