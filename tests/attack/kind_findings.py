"""What an attack found that no other kind of case would show: what a command must say, renew, or take without a fault.

What the other kinds try by themselves is left out: types in roles, places, disks, variables, values of options, files.
So is what takes more than one command: two runs on one output (tests/reading and tests/test_atomic.py have them), a run
that is killed (tests/cli/test_whole_or_not_at_all.py), and memory and time (tests/benchmarks).
"""

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from case import DATA, FAILS, OK, OUTPUT, USAGE, Case, Cases, SetUp, Surroundings, made, nothing, together, written
from commands import PLAN
from dumps_of import bad, columns, of_type, sample, with_column
from kind_files import JSON, YAML
from values import N

DUMP, LINES, WILD = "dump.parquet", "dump.jsonl", "##[error]x.parquet"
PARQUET = written(DUMP, sample())
KEPT = ("-o", "k.parquet")
INFINITE = "log_ratio_limit = inf\n[weighting]\nscope = 'token'\nhigh = inf\n"


def _case(what: str, args: tuple[str, ...], *set_ups: SetUp, ends: tuple[int, ...] = (OK,), **more: Any) -> Case:
    allowed = {*ends, FAILS} if args[0] == "check" and OK in ends else set(ends)
    set_up = together(*(set_ups or (PARQUET,)))
    return Case(kind="findings", factors=(what,), args=args, set_up=set_up, statuses=frozenset(allowed), **more)


def cases() -> Cases:
    """All of them."""
    for part in (_outputs, _inputs, _values, _words):
        yield from part()


def _filter(dump: str, *more: str) -> tuple[str, ...]:
    return ("filter", dump, *PLAN, *more)


def _dump(role: str, values: pa.Array) -> SetUp:
    return written(DUMP, with_column(".parquet", role, values))


def _outputs() -> Cases:
    """An old output never stays beside a new one, and none is made that cannot be."""
    none_rejected = ("filter", DUMP, "--rs", "k3.token:,1e9", *KEPT, "--rejected-output", "stale.parquet")
    for what, line in {"rejected": none_rejected, "bad": _filter(DUMP, *KEPT, "--quarantine", "stale.parquet")}.items():
        stale = written("stale.parquet", sample())
        outputs = {"outputs": ("k.parquet", "stale.parquet"), "renewed": ("stale.parquet",)}
        yield _case(f"no {what} rows", (*line, "--overwrite"), PARQUET, stale, **outputs)
    line = ("analyze", DUMP, "--quarantine", "q.parquet", "--max-bad-fraction", "1")
    dump, outputs = written(DUMP, bad(".parquet")), ("q.parquet",)
    again = _case("quarantined again", line, dump, ends=(OK, OUTPUT), unsaid="--overwrite", outputs=outputs)
    yield replace(again, first=(line,))
    empty, within = made(Path.mkdir, "empty"), Surroundings(here="empty")
    line, ends = _filter(f"../{DUMP}", "-o", "."), (OK, USAGE, OUTPUT)
    yield _case("-o . in an empty directory", line, PARQUET, empty, ends=ends, around=within, outputs=("empty",))
    # A row is some 20 bytes: no disk holds them, and what is drawn until then is in no memory.
    line = _filter(DUMP, "-o", "k.jsonl", "--resample", str(2**40))
    yield _case(f"filter --resample {2**40}", line, ends=(OUTPUT,), around=Surroundings(largest_file=1 << 20))
    yield _case("-o -", _filter(DUMP, "-o", "-"), ends=(OK, USAGE))


def _inputs() -> Cases:
    """What lies in a folder is read, or said; what comes twice is said."""
    files = together(written("d/a.parquet", sample()), written("real/b.parquet", sample()))
    link = made(lambda path: path.symlink_to("../real"), "d/link")
    yield _case("a linked folder", ("analyze", "d"), files, link, says="12 sequences")
    for suffix in (".json", ".jsonl.bz2", ".jsonl.xz", ".json.gz", ""):
        beside = together(written("d/a.parquet", sample()), written(f"d/part-00000{suffix}", sample()))
        yield _case(f"beside {suffix or 'no suffix'}", ("check", "d"), beside, says=suffix or "without a suffix")
    nested = together(written("d/a.parquet", sample()), written("d/b.parquet/c.parquet", sample()))
    yield _case("a pattern that hits a directory", ("analyze", "d/*.parquet"), nested, says="12 sequences")
    ids = {
        "UUID": of_type(".parquet", "sample_id", "uuid", ""),
        "binary": with_column(".parquet", "sample_id", pa.array([b"\x00\xff"] * N)),
        "list": with_column(".parquet", "sample_id", pa.array([[1, 2]] * N)),
        "decimal": of_type(".parquet", "sample_id", "decimal128(20, 0)", ""),
    }
    for name, data in ids.items():
        again = together(written("d/a.parquet", data), written("d/b.parquet", data))
        yield _case(f"the same {name} twice", ("analyze", "d"), again, ends=(DATA,))
    row = "00000000-0000-0000-0000-000000000003"
    yield _case("a row by its UUID", ("inspect", DUMP, "--row", row), written(DUMP, ids["UUID"]))
    yield _case("a long id", ("analyze", DUMP), _dump("sample_id", pa.array(["x" * 100_000] * N)), ends=(DATA,))
    double = sample(".jsonl").replace(b'"reward": 0.0', b'"reward": 0.0, "reward": 1.0', 1)
    yield _case("a key twice", ("analyze", LINES), written(LINES, double), ends=(DATA,))
    table = pa.table({**columns("passenger", pa.array(["x"] * N)), "prompt": pa.array(["a"] * N)})
    for name, more in {"prompt": "prompt", "": ""}.items():
        odd = table.append_column(more, pa.array(["b"] * N))
        set_up = made(lambda path, odd=odd: pa.parquet.write_table(odd, path), DUMP)
        line, ends = (_filter(DUMP, *KEPT), (DATA,)) if name else (("analyze", DUMP, "--group-by", ""), (OK, USAGE))
        yield _case(f"a column called {name!r}", line, set_up, ends=ends)
    for suffix, text in {".json": JSON["duplicate keys"], ".yaml": YAML["duplicate keys"]}.items():
        line, plan = ("analyze", DUMP, "--plan", f"plan{suffix}"), written(f"plan{suffix}", text)
        yield _case(f"a key twice in {suffix}", line, PARQUET, plan, ends=(USAGE,), says="name")
    more = written("d/b.parquet", with_column(".parquet", "passenger", pa.array([1.5] * N)))
    two = together(written("d/a.parquet", sample()), more)
    yield _case("other columns", _filter("d", *KEPT), two, ends=(DATA,), says="b.parquet")
    skipped = struct.pack("<IIi", 0x184D2A50, 4, 9) + sample(".jsonl.zst")
    packed = written("d.jsonl.zst", skipped)
    yield _case("pzstd's first frame", ("analyze", "d.jsonl.zst"), packed, ends=(OK, DATA), unsaid="UTF-8")


def _values() -> Cases:
    """Values that are rare, and read, measured and written nevertheless."""
    for name, value in {"NaN": float("nan"), "infinite": float("inf")}.items():
        dump = _dump("reward", pa.array([0.5, value, *[0.25] * (N - 2)]))
        says = "1 of 6 sequences have no finite reward"
        yield _case(f"a reward that is {name}", ("analyze", DUMP), dump, says=says)
    for value in ("0.99999999", "1e-50"):
        mask = sample(".jsonl").replace(b'"response_mask": [1, 1, 0]', f'"response_mask": [1, 1, {value}]'.encode(), 1)
        yield _case(f"a mask of {value}", _filter(LINES, "-o", "k.jsonl"), written(LINES, mask), ends=(DATA,))
    hole = {"old_log_probs": [[-0.5, -1.0, float("nan")]] * N, "response_mask": [[1, 1, 0]] * N}
    masked = pa.table({**columns("passenger", pa.array(["x"] * N)), **hole})
    lines = written(LINES, "".join(json.dumps(row) + "\n" for row in masked.to_pylist()))
    yield _case("NaN on a masked token", ("inspect", LINES, "--row", "1"), lines)
    for output in ("k.jsonl", "k.jsonl.zst"):
        line = _filter(LINES, "--rejected", "keep", "-o", output)
        yield _case(f"NaN on masked tokens to {output}", line, lines, outputs=(output,))
    for role, type, held in (
        *(("response_mask", "constant mask", held) for held in ("list_view", "large_list_view")),
        *((role, "string_view", "") for role in ("passenger", "step")),
    ):
        dump, kept = written(DUMP, of_type(".parquet", role, type, held)), {"outputs": KEPT[1:], "rows": N}
        yield _case(f"{type} {held} as {role}", _filter(DUMP, *KEPT), dump, dump=DUMP, **kept)
    for size in (100.0, 800.0, 8_000.0):
        far = _dump("rollout_log_probs", pa.array([[-size, -1.0, -size]] * N))
        ends = (OK, USAGE, DATA)
        for more in ((), ("--resample", "9")):
            line = ("filter", DUMP, "--plan", "plan.toml", "-o", "k.jsonl", *more)
            files = together(far, written("plan.toml", INFINITE))
            yield _case(f"weights of e^{size} {' '.join(more)}", line, files, ends=ends, outputs=("k.jsonl",))
        yield _case(f"log-ratios of {size}", ("analyze", DUMP, "--preset", "token_is"), far, ends=(OK, DATA))
    yield _case("rewards of 1e308", ("analyze", DUMP), written(DUMP, of_type(".parquet", "reward", "huge double", "")))


def _words() -> Cases:
    """What is said of names: an empty one, one that a runner would obey, one that stderr has no place for."""
    yield _case("no name", ("analyze", ""), nothing, ends=(USAGE, DATA), unsaid="Error: :")
    for option in ("--preset", "--plan"):
        for command in ("analyze", "check"):
            yield _case(f"{command} {option} ''", (command, DUMP, option, ""), ends=(USAGE,))
    dump = written(WILD, of_type(".parquet", "group key", "wild string", ""))
    for args in (
        ("inspect", WILD, "--worst", "3"),
        ("analyze", WILD, "--group-by", "key", "--json"),
        ("check", WILD, "--group-by", "##[add-mask]x"),
    ):
        yield _case(" ".join(args), args, dump, ends=(OK, FAILS, USAGE, DATA))
    for stream in ("/dev/full", ""):
        around, ends = Surroundings(stderr=stream), (USAGE,)
        what, args = f"no option, stderr {stream or 'closed'}", ("check", DUMP, "--none")
        yield _case(what, args, around=around, ends=ends, unsaid="Error")
