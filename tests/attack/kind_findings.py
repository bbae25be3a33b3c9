"""What an attack found on 2026-11-22, finding by finding: each command that was wrong, and what it promises now.

Left out are those that take more than one command: two runs on one output (tests/reading and tests/test_atomic.py have
them), a run that is killed (tests/cli/test_whole_or_not_at_all.py), and memory and time (tests/benchmarks).
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from case import DATA, FAILS, OK, OUTPUT, USAGE, Case, Cases, SetUp, Surroundings, made, nothing, together, written
from commands import PLAN
from dumps_of import bad, of_kind, of_type, sample, with_column
from kind_files import JSON, YAML
from kind_paths import PLACES, THESIS, device, holding, to_directory
from kind_surroundings import FRESH, PICTURED, full_disk
from values import N

FILTER = ("filter", *PLAN)
DUMP, LINES = "dump.parquet", "dump.jsonl"
PARQUET, JSONL = written(DUMP, sample()), written(LINES, sample(".jsonl"))
DIRECTORY = (USAGE, OUTPUT)
INFINITE = "log_ratio_limit = inf\n[weighting]\nscope = 'token'\nhigh = inf\n"


def _case(
    finding: str, what: str, args: tuple[str, ...], *set_ups: SetUp, ends: tuple[int, ...] = (OK,), **more: Any
) -> Case:
    allowed = {*ends, FAILS} if args[0] == "check" and OK in ends else set(ends)
    return Case(
        kind="findings",
        factors=(finding, what),
        args=args,
        set_up=together(*(set_ups or (PARQUET,))),
        statuses=frozenset(allowed),
        **more,
    )


def cases() -> Cases:
    """All of them."""
    for part in (_outputs, _left_out, _odd_values, _roles, _hangs, _pictures, _tracebacks, _injection, _words):
        yield from part()


def _filter(dump: str, *more: str) -> tuple[str, ...]:
    return ("filter", dump, *PLAN, *more)


def _outputs() -> Iterator[Case]:
    """F1, F3, F7b, F16, F18, F19, F32."""
    for name, argument in {
        "absolute": "{here}/k.jsonl",
        "dotted": "./k.jsonl",
        "up and down": "../here/k.jsonl",
    }.items():
        line = _filter(LINES, "-o", "k.jsonl", "--rejected-output", argument)
        yield _case("F1", f"rejected rows, {name}", line, JSONL, ends=(USAGE,))
        line = _filter(LINES, "-o", "k.jsonl", "--quarantine", argument, "--max-bad-fraction", "1")
        yield _case("F1", f"bad rows, {name}", line, written(LINES, bad(".jsonl")), ends=(USAGE,))
    for name, make in {
        "a file": lambda path: path.write_text(THESIS),
        "a device": device,
        "a linked directory": to_directory,
        "a FIFO": PLACES["a FIFO"].make,
    }.items():
        assert make is not None
        line = _filter(DUMP, "-o", "f", "--overwrite")
        yield _case("F3", f"-o {name} --overwrite", line, PARQUET, made(make, "f"), ends=DIRECTORY)
    twice = pa.table({**_columns(), "prompt": pa.array(["a"] * N)}).append_column("prompt", pa.array(["b"] * N))
    yield _case("F7b", "two columns of one name", _filter(DUMP, "-o", "x.jsonl"), _table(twice), ends=(DATA,))
    line = ("filter", DUMP, "--rs", "k3.token:,1e9", "-o", "k.parquet", "--rejected-output", "d.parquet", "--overwrite")
    stale = written("d.parquet", sample())
    yield _case(
        "F16", "no rejected rows", line, PARQUET, stale, outputs=("k.parquet", "d.parquet"), renewed=("d.parquet",)
    )
    line = _filter(DUMP, "-o", "k.parquet", "--quarantine", "q.parquet", "--overwrite")
    stale = written("q.parquet", sample())
    yield _case("F16", "no bad rows", line, PARQUET, stale, outputs=("k.parquet", "q.parquet"), renewed=("q.parquet",))
    plan = written("plan.json", '{"name": "mine"}')
    line = ("analyze", DUMP, "--plan", "plan.json", "-o", "plan.json")
    yield _case("F18", "the report over the plan", line, PARQUET, plan, ends=(USAGE,))
    line = _filter(DUMP, "-o", "w2", "--overwrite")
    yield _case("F19", "a directory of others' parts", line, PARQUET, made(holding, "w2"), ends=DIRECTORY)
    yield _case("F32", "-o -", _filter(DUMP, "-o", "-"), ends=(OK, USAGE))
    yield _case("F32", "no name", ("analyze", ""), ends=(USAGE, DATA), unsaid="Error: :")


def _left_out() -> Iterator[Case]:
    """F10, F13, F15, F20, F24, F25."""
    below = together(
        written("d/a.parquet", sample()),
        written("real/b.parquet", sample()),
        made(lambda path: path.symlink_to("../real"), "d/link"),
    )
    yield _case("F10", "a linked folder", ("analyze", "d"), below, says="12 sequences")
    for suffix in (".json", ".jsonl.bz2", ".jsonl.xz", ".json.gz", ""):
        beside = together(written("d/a.parquet", sample()), written(f"d/part-00000{suffix}", sample()))
        for command in ("analyze", "inspect", "check"):
            yield _case(
                "F10",
                f"{command} beside {suffix or 'no suffix'}",
                (command, "d"),
                beside,
                says=suffix or "without a suffix",
            )
    nested = together(written("d/a.parquet", sample()), written("d/b.parquet/c.parquet", sample()))
    yield _case("F10", "a pattern that hits a directory", ("analyze", "d/*.parquet"), nested, says="12 sequences")
    ids = {
        "UUID": of_type(".parquet", "sample_id", "uuid", ""),
        "binary": with_column(".parquet", "sample_id", pa.array([b"\x00\xff"] * N)),
        "list": with_column(".parquet", "sample_id", pa.array([[1, 2]] * N)),
        "decimal": of_type(".parquet", "sample_id", "decimal128(20, 0)", ""),
    }
    for name, data in ids.items():
        again = together(written("d/a.parquet", data), written("d/b.parquet", data))
        yield _case("F13", f"the same {name} twice", ("analyze", "d"), again, ends=(DATA,))
    row = "00000000-0000-0000-0000-000000000003"
    yield _case("F13", "a row by its UUID", ("inspect", DUMP, "--row", row), written(DUMP, ids["UUID"]))
    for name, value in {"NaN": float("nan"), "infinite": float("inf")}.items():
        reward = pa.array([0.5, value, *[0.25] * (N - 2)])
        dump = written(DUMP, with_column(".parquet", "reward", reward))
        yield _case(
            "F15", f"a reward that is {name}", ("analyze", DUMP), dump, says="1 of 6 sequences have no finite reward"
        )
    for option in ("--preset", "--plan"):
        for command in ("analyze", "check"):
            yield _case("F20", f"{command} {option} ''", (command, DUMP, option, ""), ends=(USAGE,))
    for value in ("0.99999999", "1e-50"):
        mask = sample(".jsonl").replace(b'"response_mask": [1, 1, 0]', f'"response_mask": [1, 1, {value}]'.encode(), 1)
        yield _case("F24", f"a mask of {value}", _filter(LINES, "-o", "k.jsonl"), written(LINES, mask), ends=(DATA,))
    double = sample(".jsonl").replace(b'"reward": 0.0', b'"reward": 0.0, "reward": 1.0', 1)
    yield _case("F24", "a key twice", ("analyze", LINES), written(LINES, double), ends=(DATA,))
    for suffix, text in {".json": JSON["duplicate keys"], ".yaml": YAML["duplicate keys"]}.items():
        line = ("analyze", DUMP, "--plan", f"plan{suffix}")
        yield _case(
            "F24", f"a key twice in {suffix}", line, PARQUET, written(f"plan{suffix}", text), ends=(USAGE,), says="name"
        )
    more = written("d/b.parquet", with_column(".parquet", "passenger", pa.array([1.5] * N)))
    two = together(written("d/a.parquet", sample()), more)
    yield _case("F25", "other columns", _filter("d", "-o", "k.parquet"), two, ends=(DATA,), says="b.parquet")


def _columns() -> dict[str, pa.Array]:
    from dumps_of import columns

    return columns("passenger", pa.array(["x"] * N))


def _table(table: pa.Table) -> SetUp:
    return made(lambda path: pa.parquet.write_table(table, path), DUMP)


ODD = ("uuid", "date32[day]", "timestamp us", "timestamp us unknown zone", "string not UTF-8", "dictionary not UTF-8")


def _odd_values() -> Iterator[Case]:
    """F4, F7a, F9, F14, F30, F31: values that a command writes."""
    nan = [float("nan"), -1.0, -0.5]
    lists = {name: pa.array([nan] * N) for name in ("advantages", "current_log_probs")}
    dumps = {
        "a log-prob of NaN": bad(".parquet"),
        "a reward of NaN": of_type(".parquet", "reward", "double", ""),
        "an advantage of NaN": with_column(".parquet", "advantages", lists["advantages"]),
    }
    hole = {"old_log_probs": [[-0.5, -1.0, float("nan")]] * N, "response_mask": [[1, 1, 0]] * N}
    masked = pa.table({**_columns(), **hole})
    row_lines = "".join(json.dumps(row) + "\n" for row in masked.to_pylist())
    for name, data in dumps.items():
        yield _case("F4", name, ("inspect", DUMP, "--row", "0"), written(DUMP, data), ends=(OK, DATA))
    yield _case("F4", "NaN on a masked token", ("inspect", LINES, "--row", "1"), written(LINES, row_lines))
    for type in ODD:
        dump = written(DUMP, of_type(".parquet", "passenger", type, ""))
        for output in ("k.jsonl", "k.jsonl.gz"):
            yield _case(
                "F7a",
                f"{type} to {output}",
                _filter(DUMP, "-o", output),
                dump,
                ends=(OK, DATA, OUTPUT),
                outputs=(output,),
            )
    for held in ("list_view", "large_list_view"):
        dump = written(DUMP, of_type(".parquet", "response_mask", "constant mask", held))
        yield _case(
            "F9", f"a mask in {held}", _filter(DUMP, "-o", "k.parquet"), dump, outputs=("k.parquet",), rows=N, dump=DUMP
        )
    for role in ("passenger", "step"):
        dump = written(DUMP, of_type(".parquet", role, "string_view", ""))
        line = _filter(DUMP, "-o", "k.parquet")
        yield _case("F9", f"string_view as {role}", line, dump, outputs=("k.parquet",), rows=N, dump=DUMP)
    for size in (100.0, 800.0, 8_000.0):
        far = written(DUMP, with_column(".parquet", "rollout_log_probs", pa.array([[-size, -1.0, -size]] * N)))
        files = together(far, written("plan.toml", INFINITE))
        for more in ((), ("--resample", "9")):
            line = ("filter", DUMP, "--plan", "plan.toml", "-o", "k.jsonl", *more)
            yield _case(
                "F14",
                f"{' '.join(('weights of e^', str(size), *more))}",
                line,
                files,
                ends=(OK, USAGE, DATA),
                outputs=("k.jsonl",),
            )
        yield _case("F31", f"log-ratios of {size}", ("analyze", DUMP, "--preset", "token_is"), far, ends=(OK, DATA))
    for suffix in (".jsonl", ".jsonl.zst"):
        line = _filter(LINES, "--rejected", "keep", "-o", f"k{suffix}")
        yield _case(
            "F30", f"NaN on masked tokens to {suffix}", line, written(LINES, row_lines), outputs=(f"k{suffix}",)
        )
    rewards = written(DUMP, of_type(".parquet", "reward", "huge double", ""))
    yield _case("F31", "rewards of 1e308", ("analyze", DUMP), rewards)
    yield _case("F31", "--is token:1e308,", ("analyze", DUMP, "--is", "token:1e308,"), ends=(OK, USAGE))
    wide = Surroundings(environment=(("COLUMNS", "10000000"),))
    for args in (("analyze", DUMP), ("analyze", "--help"), ("presets",)):
        yield _case("F31", f"COLUMNS=10000000 {args[0]} {args[-1]}", args, around=wide)


def _roles() -> Iterator[Case]:
    """F8: the same kinds as key, step or sample_id."""
    for type in ODD[1:]:
        for role, column in {"group key": "key", "step": "step", "sample_id": "sample_id"}.items():
            dump = written(DUMP, of_type(".parquet", role, type, ""))
            group = () if role == "sample_id" else ("--group-by", column)
            for args in (
                ("analyze", DUMP, *group),
                ("check", DUMP, *group),
                ("plot", DUMP, "--kind", "ratio", "-o", "p.svg", *group),
                _filter(DUMP, "-o", "k.parquet"),
                ("inspect", DUMP, "--row", "2"),
            ):
                ends = (OK, USAGE, DATA, *((FAILS,) if args[0] == "check" else ()))
                yield _case(
                    "F8", f"{args[0]} with {type} as {role}", args, dump, ends=ends, outputs=("p.svg", "k.parquet")
                )


def _hangs() -> Iterator[Case]:
    """F5, F23."""
    tb = ("analyze", DUMP, "--group-by", "step", "-o")
    yield _case("F5", "TensorBoard on a full disk", (*tb, "full/r.tb"), PARQUET, full_disk(False), ends=(OUTPUT,))
    yield _case(
        "F5",
        "TensorBoard and ulimit -f",
        (*tb, "r.tb"),
        ends=(OUTPUT,),
        around=Surroundings(largest_file=400, stdout="/dev/null"),
    )
    bombs = ("merge-key bomb", "alias bomb in defaults", "alias bomb in a block of a peer", "10000 rejections")
    for name in bombs:
        for line in (("analyze", DUMP, "--plan", "odd.yaml"), ("check", DUMP, "--rules", "odd.yaml")):
            yield _case("F23", f"{line[2]} {name}", line, PARQUET, written("odd.yaml", YAML[name]), ends=(OK, USAGE))
    for name, make in {"a FIFO": PLACES["a FIFO"].make, "/dev/zero": lambda path: path.symlink_to("/dev/zero")}.items():
        assert make is not None
        for line in (("analyze", DUMP, "--plan", "odd"), ("check", DUMP, "--rules", "odd.toml")):
            yield _case("F23", f"{line[2]} {name}", line, PARQUET, made(make, line[3]), ends=(USAGE,))


def _pictures() -> Iterator[Case]:
    """F6, F31: what matplotlib reads when it starts."""
    for odd in ("MPLBACKEND=module://matplotlib_inline.backend_inline", "usetex", "MPLCONFIGDIR=/dev/null"):
        surroundings = FRESH[odd]
        for name, form in PICTURED.items():
            case = _case("F6", f"{name} and {odd}", form.on(DUMP), PARQUET, surroundings.set_up, outputs=form.outputs)
            yield replace(case, around=surroundings.around).within(fresh=True)


def _tracebacks() -> Iterator[Case]:
    """F12."""
    for option in ("-o", "--quarantine"):
        more = () if option == "-o" else ("-o", "k.parquet", "--max-bad-fraction", "1")
        line = _filter(DUMP, option, "x" * 300 + ".parquet", *more)
        yield _case(
            "F12", f"filter {option} of 300 characters", line, written(DUMP, bad(".parquet")), ends=(*DIRECTORY, DATA)
        )
    long = "y" * 247 + ".parquet"
    yield _case(
        "F12", "filter -o of 247 characters and .parquet", _filter(DUMP, "-o", long), outputs=(long,), ends=(OK, OUTPUT)
    )
    for command in ("check", "plot"):
        yield _case(
            "F12",
            f"{command} a name of 300 characters",
            (command, "x" * 300 + ".json"),
            nothing,
            ends=(USAGE, DATA, OUTPUT),  # the picture's name would be longer still
        )
    within = Surroundings(here="empty")
    line = _filter(f"../{DUMP}", "-o", ".")
    yield _case(
        "F12",
        "-o . in an empty directory",
        line,
        PARQUET,
        made(Path.mkdir, "empty"),
        ends=(OK, *DIRECTORY),
        around=within,
        outputs=("empty",),
    )
    closed = made(lambda path: (path.mkdir(), path.chmod(0)), "closed")
    user = Surroundings(unprivileged=True)
    for args in (
        _filter(DUMP, "-o", "closed/k.parquet"),
        _filter(DUMP, "-o", "closed"),
        ("analyze", DUMP, "-o", "closed/r.json"),
        ("check", DUMP, "--junit", "closed/j.xml"),
        ("plot", DUMP, "--kind", "ratio", "-o", "closed/p.svg"),
        ("analyze", "closed/none.parquet"),
        ("check", "closed/none.json"),
    ):
        yield _case(
            "F12",
            f"without rights: {args[0]} {args[-1]}",
            args,
            PARQUET,
            closed,
            ends=(USAGE, DATA, OUTPUT),
            around=user,
        )
    yield _case(
        "F12", "standard input closed", ("analyze", "-"), nothing, ends=(USAGE, DATA), around=Surroundings(stdin="")
    )
    unnamed = pa.table({**_columns(), "": pa.array(["a"] * N)})
    yield _case("F12", "--group-by ''", ("analyze", DUMP, "--group-by", ""), _table(unnamed), ends=(OK, USAGE))
    for option, value in (("--batch-tokens", 2**63), ("--resample", 2**63), ("--seed", 2**64)):
        line = _filter(DUMP, "-o", "k.parquet", option, str(value))
        yield _case("F12", f"filter {option} {value}", line, ends=(OK, USAGE), outputs=("k.parquet",))
    # A row is some 20 bytes: no disk holds them, and what is drawn until then is in no memory.
    line = _filter(DUMP, "-o", "k.jsonl", "--resample", str(2**40))
    yield _case("F12", f"filter --resample {2**40}", line, ends=(OUTPUT,), around=Surroundings(largest_file=1 << 20))
    for option in ("--max-bad-fraction", "--extreme-ratio", "--clip-low"):
        for value in ("nan", "inf"):
            yield _case("F12", f"{option} {value}", ("analyze", DUMP, option, value), ends=(USAGE,))
    for line in (_filter(DUMP, "-o", "ftp://x/k"), ("plot", DUMP, "--kind", "ratio", "-o", "ftp://x/p")):
        yield _case("F12", f"{line[0]} -o {line[-1]}", line, ends=(USAGE,))
    for args in (("--help",), ("analyze", "--help"), ("presets",)):
        for around in (Surroundings(stdout=""), Surroundings(stdout="/dev/full", stderr="/dev/full")):
            colours = replace(around, environment=(("FORCE_COLOR", "1"),))
            name = f"{' '.join(args)} to {around.stdout or 'a closed stdout'}"
            yield _case("F12", name, args, around=colours, ends=(OUTPUT,))
    yield _case("F12", "analyze --seed 2^64", ("analyze", DUMP, "--seed", str(2**64)), ends=(OK, USAGE))
    steps = written(DUMP, with_column(".parquet", "step", pa.array([2**64 - 1] * N, pa.uint64())))
    line = ("analyze", DUMP, "--group-by", "step", "-o", "r.tb")
    yield _case("F12", ".tb with a step of 2^64 - 1", line, steps, ends=(OK, USAGE, DATA, OUTPUT), outputs=("r.tb",))
    for name in (
        "tag !!bool maybe",
        'tag !!int ""',
        'tag !!float ""',
        "tag !!timestamp foo",
        "a number of underscores",
    ):
        line = ("analyze", DUMP, "--plan", "odd.yaml")
        yield _case("F12", f"YAML {name}", line, PARQUET, written("odd.yaml", YAML[name]), ends=(USAGE,))


def _injection() -> Iterator[Case]:
    """F11, F35."""
    dump = written("##[error]x.parquet", of_type(".parquet", "group key", "wild string", ""))
    ids = written(LINES, of_kind(".jsonl", "sample_id", "GitHub", "in all rows"))
    for args in (
        ("inspect", "##[error]x.parquet", "--worst", "3"),
        ("inspect", "##[error]x.parquet", "--json"),
        ("analyze", "##[error]x.parquet", "--group-by", "key"),
        ("analyze", "##[error]x.parquet", "--group-by", "key", "--json"),
        ("check", "##[error]x.parquet", "--group-by", "key", "--json"),
        ("check", "##[error]x.parquet", "--group-by", "##[add-mask]x"),
    ):
        yield _case("F11", " ".join(args), args, dump, ends=(OK, FAILS, USAGE, DATA))
    yield _case("F11", "an id", ("analyze", LINES), ids, ends=(DATA,))
    args = ("analyze", DUMP, "--map", "\x1b[31m\n::error::x ##[error]y", "--debug")
    yield _case("F35", "--debug", args, ends=(USAGE,))


def _words() -> Iterator[Case]:
    """F17, F22, F26, F29."""
    line = ("analyze", DUMP, "--quarantine", "q.parquet", "--max-bad-fraction", "1")
    dump = written(DUMP, bad(".parquet"))
    case = _case(
        "F17", "--quarantine a second time", line, dump, ends=(OK, OUTPUT), unsaid="--overwrite", outputs=("q.parquet",)
    )
    yield replace(case, first=(line,))
    skipped = struct.pack("<IIi", 0x184D2A50, 4, 9) + sample(".jsonl.zst")
    yield _case(
        "F22",
        "pzstd's first frame",
        ("analyze", "d.jsonl.zst"),
        written("d.jsonl.zst", skipped),
        ends=(OK, DATA),
        unsaid="UTF-8",
    )
    ids = written(DUMP, with_column(".parquet", "sample_id", pa.array(["x" * 100_000] * N)))
    yield _case("F26", "an id of 100,000 characters", ("analyze", DUMP), ids, ends=(DATA,))
    keys = written("plan.json", json.dumps({f"key{i}": i for i in range(100_000)}))
    yield _case("F26", "a plan of unknown keys", ("analyze", DUMP, "--plan", "plan.json"), PARQUET, keys, ends=(USAGE,))
    for stream in ("/dev/full", ""):
        around = Surroundings(stderr=stream)
        yield _case(
            "F29",
            f"an error on stderr {stream or 'closed'}",
            ("analyze", "none"),
            around=around,
            ends=(DATA,),
            unsaid="Error",
        )
        yield _case(
            "F29",
            f"no option, stderr {stream or 'closed'}",
            ("check", DUMP, "--none"),
            around=around,
            ends=(USAGE,),
            unsaid="Error",
        )
