"""Plans, rules, configs, baselines and saved reports: every key with every wrong value, bombs, and odd files."""

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from case import DATA, FAILS, OK, USAGE, Case, Cases, SetUp, made, nothing, together, written
from dumps_of import sample

from rlcorr_cli.plans.preset_configs import PeerConfig
from rlcorr_cli.plans.presets import PRESETS

DUMP = "dump.parquet"
WRONG: dict[str, str] = {
    "null": "null", "true": "true", "empty": '""', "text": '"x"', "list": "[]", "nested": "[[[]]]", "object": "{}",
    "minus one": "-1", "zero": "0", "half": "0.5", "huge": "1e308", "infinite": "1e400", "NaN": "NaN",
    "400 digits": "1" * 400, "5000 digits": "9" * 5_000, "2^64": "18446744073709551616", "tiny": "1e-320",
    "escape": r'"\u001b[31m::error::x\n##[error]y"', "half a pair": r'"\ud800"', "long": '"' + "x" * 100_000 + '"',
    "long list": json.dumps(["y"] * 20_000), "deep": "[" * 500 + "]" * 500,
}  # fmt: skip
"""Name -> a JSON value that few keys take."""
RULES = {
    "defaults": True,
    "rule": [
        {"metric": "kl", "max": 1.0, "severity": "warn", "over": "total", "remedy": "Wait.", "absolute": False},
        {"metric": "seq_ess", "min": 0.0},
    ],
}
GONE = object()


class Literal(str):
    """Text that stands in a JSON document as it is."""


def documents() -> Iterator[tuple[str, str, Any]]:
    """(option, name, a valid document) of every kind of file; presets stand for plans."""
    for name in ("geo_rs", "m2po", *list(PRESETS)[-2:]):
        if name in PRESETS:
            yield "--plan", name, PRESETS[name].plan.to_dict()
    yield "--rules", "rules", RULES


def cases() -> Cases:
    """All of them."""
    for option, name, document in documents():
        needs_advantages = "gate" in _text(document)  # which the dump has not
        for case in _mutated(option, name, document):
            yield Case(**{**vars(case), "statuses": case.statuses | ({DATA} if needs_advantages else set())})
    for option, name in (("--baseline", "report"), ("saved", "report")):
        yield from _mutated_report(option, name)
    for option in ("--plan", "--rules", "--baseline", "--plan --profile", "saved"):
        for text_name, (suffix, text) in texts().items():
            yield _case(option, text_name, suffix, written(f"odd{suffix}", text))
        for file_name, make in ODD_FILES.items():
            for suffix in (".json", ".yaml", ".toml"):
                yield _case(option, file_name, suffix, made(make, f"odd{suffix}") if make else nothing)
        yield _case(option, "no name", "", nothing, name="")
        yield _case(option, "another suffix", ".txt", written("odd.txt", "{}"))
    yield from _configs()


def line(option: str, name: str) -> tuple[str, ...]:
    """A command that reads a file."""
    if option == "saved":
        return ("check", name)
    if option == "--plan --profile":
        return ("analyze", DUMP, "--plan", name, "--profile", "verl-0.9")
    more = {"--baseline": ("--max-increase", "kl=10%")}.get(option, ())
    return ("analyze" if option == "--plan" else "check", DUMP, option, name, *more)


def _case(option: str, what: str, suffix: str, set_up: SetUp, name: str | None = None, **more: Any) -> Case:
    args = line(option, f"odd{suffix}" if name is None else name)
    ends = {OK, USAGE, DATA} | ({FAILS} if args[0] == "check" else set())
    return Case(
        kind="files",
        factors=(option, what, suffix),
        args=args,
        set_up=together(written(DUMP, sample()), set_up),
        statuses=frozenset(ends - (set() if option in ("saved", "--baseline") else {DATA})),
        **more,
    )


def _mutated(option: str, name: str, document: Any) -> Iterator[Case]:
    for path in _paths(document):
        for wrong, value in WRONG.items():
            text = _text(_changed(document, path, Literal(value)))
            for suffix in (".json", ".yaml"):
                yield _case(option, f"{name} {_dotted(path)} is {wrong}", suffix, written(f"odd{suffix}", text))
        text = _text(_changed(document, path, GONE))
        yield _case(option, f"{name} without {_dotted(path)}", ".json", written("odd.json", text))
        text = _text(_changed(document, (*path[:-1], "##[error]\x1b new"), 1)) if isinstance(path[-1], str) else "{}"
        yield _case(option, f"{name} with a key beside {_dotted(path)}", ".json", written("odd.json", text))


def _mutated_report(option: str, name: str) -> Iterator[Case]:
    """A report that was saved, one value of it changed; which values there are is only known once it is made."""
    for i in range(60):
        for wrong, value in WRONG.items():

            def change(here: Path, i: int = i, value: str = value) -> None:
                document = json.loads((here / "odd.json").read_text())
                paths = list(_paths(document))
                path = paths[i * 7919 % len(paths)]
                (here / "odd.json").write_text(_text(_changed(document, path, Literal(value))))

            made_by = ("analyze", DUMP, "--group-by", "step", "-o", "odd.json")
            yield _case(option, f"{name} value {i} is {wrong}", ".json", nothing, first=(made_by,), then=change)


def _paths(document: Any, at: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """The path of every value in it, first of each list."""
    if at:
        yield at
    items = (
        document.items()
        if isinstance(document, dict)
        else enumerate(document[:1])
        if isinstance(document, list)
        else ()
    )
    for key, value in items:
        yield from _paths(value, (*at, key))


def _changed(document: Any, path: tuple[str | int, ...], value: Any) -> Any:
    if not path:
        return value
    copy: Any = dict(document) if isinstance(document, dict) else list(document)
    if len(path) == 1 and value is GONE:
        del copy[path[0]]
    elif len(path) == 1:
        copy[path[0]] = value
    else:
        copy[path[0]] = _changed(document[path[0]], path[1:], value)
    return copy


def _text(document: Any) -> str:
    """JSON, which is YAML too, literals in it as they are."""
    if isinstance(document, Literal):
        return str(document)
    if isinstance(document, dict):
        return "{" + ", ".join(f"{json.dumps(key)}: {_text(value)}" for key, value in document.items()) + "}"
    if isinstance(document, list | tuple):
        return "[" + ", ".join(map(_text, document)) + "]"
    return json.dumps(document)


def _dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


@cache
def texts() -> dict[str, tuple[str, bytes]]:
    """Name -> suffix and content of files that are odd as such."""
    made = {f"YAML {name}": (".yaml", text.encode()) for name, text in YAML.items()}
    made |= {f"JSON {name}": (".json", text.encode()) for name, text in JSON.items()}
    made |= {f"TOML {name}": (".toml", text.encode()) for name, text in TOML.items()}
    for suffix in (".json", ".yaml", ".toml"):
        made |= {f"{name} {suffix}": (suffix, data) for name, data in BYTES.items()}
    return made


def _aliases(rows: int, key: str) -> str:
    """Each list holds the one before nine times."""
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, rows)]
    return "\n".join([*lines, f"{key}: *a{rows - 1}", ""])


def _merges(rows: int) -> str:
    lines = ["m0: &m0 {name: x}"]
    lines += [f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 9)}]}}" for i in range(1, rows)]
    return "\n".join([*lines, f"<<: *m{rows - 1}", ""])


def _merges_in_order(rows: int) -> str:
    """Merge keys that all hold the keys of the one before, under a rule."""
    return _merges(rows) + "rule: [{<<: *m1}]\n"


YAML: dict[str, str] = {
    **{
        f"alias bomb in {key}": _aliases(9, key)
        for key in ("name", "defaults", "rejections", "rule", "algorithm", "loss_fn")
    },
    "alias bomb in a block of a peer": _aliases(8, "x") + "algorithm:\n  rollout_correction:\n    rollout_is: *a7\n",
    "alias bomb in a rule": _aliases(8, "x") + "rule: [{metric: kl, max: *a7}]\n",
    "merge-key bomb": _merges(9),
    "larger merge-key bomb": _merges(30),
    "merge-key bomb in a rule": _merges_in_order(9),
    "recursion": "&a [*a]",
    "recursion in a key": "name: &a {b: *a}\n",
    "recursive rules": "rule: &r [*r]\n",
    "10000 rejections": "rejections:\n" + "- {statistic: ratio, scope: token, low: 0.5, high: 2.0}\n" * 10_000,
    "10000 rules": "rule:\n" + "- {metric: kl, max: 1.0}\n" * 10_000,
    "100000 unknown keys": "".join(f"key{i}: {i}\n" for i in range(100_000)),
    **{
        f"tag {tag}": f"name: {tag}\ndefaults: {tag}\nrule: [{{metric: kl, max: {tag}}}]\nlog_ratio_limit: {tag}\n"
        for tag in (
            *(
                "!!bool maybe",
                '!!int ""',
                '!!float ""',
                "!!timestamp foo",
                '!!binary "?"',
                "!!set {a}",
                "!!omap [a: 1]",
            ),
            *("!!pairs [a: 1]", "!!python/object/apply:os.system [id]", "!mine x", "!!null x", "!!str 1", "!!int 0b2"),
            *("!!int 0o9", "!!int 0x", "!!int 1:99", "!!merge x", "!!value x", "!!float 1_", "!<tag:x> y", "! x"),
        )
    },
    "a number of underscores": "log_ratio_limit: 1_" + "0" * 400 + "\n",
    "underscores alone": "log_ratio_limit: 1__._\nname: _\n",
    "sexagesimal": "log_ratio_limit: 190:20:30.15\n",
    "date": "name: 2001-01-01\nlog_ratio_limit: 2001-99-99\n",
    "time": "name: 2001-12-14t21:59:43.10-99:00\n",
    "octal": "log_ratio_limit: 0o7777777777777777777777\nname: 0b1\n",
    "merge of a text": "<<: x\n",
    "a key that is a list": "? [a]\n: b\n",
    "a key that is a mapping": "{{a: 1}: 2}\n",
    "a key that is null": "~: 1\n",
    "a key that is a number": "1: 2\n1.0: 3\n",
    "= alone": "=: x\nname: =\n",
    "duplicate keys": "name: a\nname: b\ndefaults: true\ndefaults: false\n",
    "two documents": "name: a\n---\nname: b\n",
    "no document": "# nothing\n",
    "a tab": "name:\n\t- a\n",
    "an unknown alias": "name: *a\n",
    "a directive": "%YAML 9.9\n---\nname: a\n",
    "an unknown directive": "%FOO bar\n--- {}\n",
    "an escape": 'name: "\\e[31m\\x85##[error]"\n##[error]: 1\n',
    "depth": "[" * 10_000 + "]" * 10_000,
    "depth of blocks": "".join(f"{' ' * i}a:\n" for i in range(900)),
    "an anchor of 100000": "&" + "a" * 100_000 + " x",
    "text of 1 MB": "name: " + "x" * 1_000_000 + "\n",
    "unclosed": "name: [a, {b: 'c\n",
}
JSON: dict[str, str] = {
    "depth": "[" * 100_000 + "]" * 100_000,
    "depth of objects": '{"a":' * 5_000 + "1" + "}" * 5_000,
    "duplicate keys": '{"name": "a", "name": "b", "defaults": true, "defaults": false}',
    "a number": "1",
    "a list": "[]",
    "null": "null",
    "a text": '"##[error]x"',
    "NaN": '{"log_ratio_limit": NaN}',
    "a key of 100000": json.dumps({"x" * 100_000: 1}),
    "a key with an escape": '{"\\u001b[31m##[error]x\\n::error::y": 1}',
    "cut short": '{"name": "a',
    "half a pair": '{"\\ud800": "\\udfff"}',
    "10000 rejections": json.dumps(
        {"rejections": [{"statistic": "ratio", "scope": "token", "low": 0.5, "high": 2.0}] * 10_000}
    ),
    "10000 rules": json.dumps({"rule": [{"metric": "kl", "max": 1.0}] * 10_000}),
    "3 MB of unknown keys": json.dumps({f"key{i}": "x" * 20 for i in range(90_000)}),
}
TOML: dict[str, str] = {
    "duplicate keys": 'name = "a"\nname = "b"\n',
    "duplicate tables": "[weighting]\n[weighting]\n",
    "depth": "a = " + "[" * 10_000 + "]" * 10_000,
    "depth of keys": ".".join("a" * 3_000) + " = 1\n",
    "numbers": "log_ratio_limit = 1" + "0" * 5_000 + "\n",
    "infinite": "log_ratio_limit = inf\nname = nan\n",
    "dates": "name = 1979-05-27T07:32:00Z\ndefaults = 07:32:00\n",
    "an escape": 'name = "\\u001b[31m##[error]x\\n::error::y"\n',
    "an unknown key with an escape": '"\\u001b[31m##[error]x" = 1\n',
    "10000 rules": '[[rule]]\nmetric = "kl"\nmax = 1.0\n' * 10_000,
    "cut short": "[[rule",
}
BYTES = {
    "no UTF-8": b'{"name": "\xff\xfe"}',
    "UTF-16": "{}".encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "NUL": b"\0" * 1_000,
    "empty": b"",
    "all bytes": bytes(range(256)),
    "20 MB": b"# " + b"x" * 20_000_000,
}
ODD_FILES = {
    "a FIFO": os.mkfifo,
    "a directory": Path.mkdir,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "an empty device": lambda path: path.symlink_to("/dev/null"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a missing file": None,
}


def _configs() -> Iterator[Case]:
    """The configs of every preset's framework, one value of each made wrong."""
    for name, config in sorted(_peer_configs().items()):
        rows = config.text.splitlines()
        profile = ("--profile", config.reader) if config.reader else ()
        for i, row in enumerate(rows):
            key, colon, value = row.partition(": ")
            for wrong, text in WRONG.items():
                if colon and value:
                    changed = "\n".join([*rows[:i], f"{key}: {text}", *rows[i + 1 :], ""])
                    case = _case(
                        "--plan", f"config of {name}, {key.strip()} is {wrong}", ".yaml", written("odd.yaml", changed)
                    )
                    # A method may look at columns that the dump has not.
                    yield Case(**{**vars(case), "args": (*case.args, *profile), "statuses": case.statuses | {DATA}})


def _peer_configs() -> dict[str, PeerConfig]:
    return {name: row.config for name, row in PRESETS.items() if row.config is not None}
