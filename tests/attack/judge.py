"""What every command promises, whatever it is pointed at: `wrong(tried)` names each promise that a command broke."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import readable
from case import FAILS, INTERRUPTED, OK, REFUSED
from workplace import Tried

LONGEST_LINE = 2_000
"""Characters of one line of an error."""
FAULT = 70
COUNTS = re.compile(
    r"([\d,]+) rows? in = ([\d,]+) out \+ ([\d,]+) dropped(?:[^\n]*?\+ ([\d,]+) (?:quarantined|skipped))?"
)
LIBRARY = re.compile(r"\w+Warning\b|^\S+\.py:\d+|^(?:WARNING|INFO|DEBUG)[: ]", re.MULTILINE)
ANNOTATION = re.compile(r"::(?:error|warning|notice) title=[^:]*::|::(?:group|endgroup)::")
"""What `check` itself says to GitHub."""
CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\x80-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def wrong(tried: Tried) -> list[str]:
    """What the command did that it must not, each with its class before a colon."""
    if tried.ended.status is None:
        return [f"hang: it did not end, {tried.ended.seconds:.0f} s of CPU"]
    return [fault for judge in JUDGES for fault in judge(tried)]


def _status(tried: Tried) -> Iterator[str]:
    status, err = tried.ended.status, _text(tried.err)
    if "Traceback (most recent call last)" in err and "--debug" not in tried.case.args:
        yield f"traceback: {_last_frame(err)}"
    elif status not in (*tried.case.statuses, *INTERRUPTED):
        first = err.strip().splitlines()[:1] or [_text(tried.out).strip()[-200:]]
        yield f"status: {status} is none of {sorted(tried.case.statuses)}: {first[0][:300]}"
    else:
        text = " ".join((err + " " + _text(tried.out)).split())
        if tried.case.says not in text:
            yield f"words: it does not say '{tried.case.says}': {text[-300:]}"
        if tried.case.unsaid and tried.case.unsaid in text:
            yield f"words: it says '{tried.case.unsaid}': {text[-300:]}"
        for name in tried.case.renewed:
            if tried.before.get(name) == tried.after.get(name):
                yield f"stale: {name} is still as it was"


def _last_frame(err: str) -> str:
    """Where a traceback ends, in our own code, and with what."""
    frames = re.findall(r'rlcorr_cli/(\S+\.py)", line (\d+), in (\S+)', err)
    error = next((line for line in reversed(err.splitlines()) if re.match(r"[\w.]+(?:Error|Exception|Abort)?\b:?", line)
                  and not line.startswith(("This is a fault", " "))), "")  # fmt: skip
    return f"{':'.join(frames[-1][:2]) if frames else '?'} {error[:200]}"


def _error(tried: Tried) -> Iterator[str]:
    """A failure is said in two lines; a success says nothing of libraries."""
    err, status, args = _text(tried.err), tried.ended.status, tried.case.args
    if tried.err is None or status == FAULT or "Traceback" in err:
        return
    if library := LIBRARY.search(err):
        yield f"library: {library.group()!r} on stderr: {err.strip()[:300]}"
    if status not in REFUSED:
        return
    rows = err.splitlines()
    if "--json" in args and len(rows) == 1 and rows[0].startswith("{"):
        yield from _parsed("stderr", rows[0])
    elif not 1 <= len(rows) <= 2 or not rows[0].startswith("Error: "):
        yield f"error: {len(rows)} lines: {err.strip()[:300]}"
    if any(len(row) > LONGEST_LINE for row in rows):
        yield f"long: a line of {max(map(len, rows))} characters: {err[:100]}"


def _parsed(what: str, text: str) -> Iterator[str]:
    try:
        readable.document(text)
    except readable.NotAsDescribed as error:
        yield f"json: {what}: {error.message[:200]} at {error.instance_path}"
    except (readable.Broken, ValueError) as error:
        yield f"json: {what}: {error}"


def _injection(tried: Tried) -> Iterator[str]:
    """Names and values of the dump reach no terminal and no runner as commands."""
    for name, text in (("stdout", _text(tried.out)), ("stderr", _text(tried.err))):
        if tried.ended.status == FAULT or ("Traceback" in text and "--debug" not in tried.case.args):
            continue
        if control := CONTROL.search(text):
            yield f"control: {control.group()!r} on {name}: {text[max(0, control.start() - 60) : control.end() + 60]!r}"
        for line in re.split(r"[\r\n]", text):
            if "##[" in line or (line.lstrip().startswith("::") and not ANNOTATION.match(line)):
                yield f"injection: {name}: {line[:200]}"
                break


def _outputs(tried: Tried) -> Iterator[str]:
    """What is named as an output is whole, or as it was; all else is as it was."""
    for path, change in sorted(tried.changed.items()):
        if not _is_output(path, tried.case.outputs):
            yield f"harm: {path} {change}: {tried.before.get(path, '')[:40]} -> {tried.after.get(path, '')[:40]}"
        elif tried.ended.status not in (OK, FAILS) and tried.out is not None:  # else it may have failed to tell of it
            yield f"partial: {path} {change}, and the command failed"
    if tried.ended.status not in (OK, FAILS):
        return
    for name in tried.case.outputs:
        path = _as_named(tried, name)
        if any(_is_output(other, (name,)) for other in tried.changed) and path.exists() and (
            path.is_dir() or path.is_file()
        ) and (fault := readable.fault(path, schemed=tried.case.args[0] in SCHEMED)):  # fmt: skip
            yield f"unreadable: {name}: {fault}"


def _as_named(tried: Tried, name: str) -> Path:
    """An output's path by the name that tells its form: that of a link to it, where it was written through one."""
    path = tried.here / name
    links = (tried.here / other for other in tried.case.outputs)
    return next(
        (link for link in links if link.is_symlink() and path.exists() and link.exists() and link.samefile(path)), path
    )


def _is_output(path: str, outputs: tuple[str, ...]) -> bool:
    names = [*outputs, *(f"{name.removesuffix('.md')}-figures" for name in outputs if name.endswith(".md"))]
    return any(path == name or path.startswith(f"{name}/") for name in names)


def _documents(tried: Tried) -> Iterator[str]:
    """--json prints one JSON object, as its schema says."""
    args = tried.case.args
    if "--json" in args and tried.out is not None and tried.ended.status in (OK, FAILS) and args[0] in SCHEMED:
        yield from _parsed("stdout", _text(tried.out))


SCHEMED = ("analyze", "filter", "check", "inspect", "diff", "watch")


def _rows(tried: Tried) -> Iterator[str]:
    """filter's rows in are its rows out, dropped and quarantined, and as many lie in its files."""
    case = tried.case
    if case.args[0] != "filter" or tried.ended.status != OK or tried.out is None or "--json" in case.args:
        return
    counts = COUNTS.search(" ".join(_text(tried.out).split()))
    if counts is None:
        if "--resample" not in case.args:
            yield f"rows: no count of rows: {_text(tried.out)[-200:]!r}"
        return
    read, kept, dropped, aside = (int((count or "0").replace(",", "")) for count in counts.groups())
    if read != kept + dropped + aside or (case.rows is not None and read != case.rows):
        yield f"rows: {counts.group()} of {case.rows}"
    places = (("-o", kept), ("--rejected-output", dropped), ("--quarantine", aside))
    for option, count in places:
        path = _named(tried, option)
        held = readable.rows(path) if path is not None and path.exists() and not readable.fault(path) else None
        if held is not None and held != count and "--dry-run" not in case.args:
            yield f"rows: {option} holds {held}, {count} are said"


def _named(tried: Tried, option: str) -> Path | None:
    args = tried.case.args
    path = tried.here / args[args.index(option) + 1] if option in args[:-1] else None
    # A name that is too long names nothing; pathlib raises there.
    return path if path is not None and os.access(path, os.F_OK) and (path.is_file() or path.is_dir()) else None


def _carried(tried: Tried) -> Iterator[str]:
    """Every column comes through as it was, but the mask; `number` tells which row is which."""
    case, output = tried.case, _named(tried, "-o") if tried.case.args[0] == "filter" else None
    if output is None or case.dump is None or tried.ended.status != OK or readable.fault(output):
        return
    dump = tried.here / case.dump
    if dump.suffix.startswith((".pa", ".pq")) and output.suffix == ".parquet":
        before, after = readable.pq.read_table(dump), readable.pq.read_table(output)
        if "number" not in before.column_names:
            return
        for name in before.column_names:
            if name not in MASKS and not _same(before.column(name), after.column(name), after.column("number")):
                yield f"carried: {name} of {before.column(name).type} came out as {after.column(name).type}, or changed"


MASKS = ("response_mask",)


def _same(before: pa.ChunkedArray, after: pa.ChunkedArray, numbers: pa.ChunkedArray) -> bool:
    """Whether a column holds the values of these rows, NaN for NaN."""
    if before.type != after.type:
        return False
    for i, number in enumerate(numbers.to_pylist()):
        old, new = before.slice(number, 1), after.slice(i, 1)
        if not old.equals(new) and old.to_string() != new.to_string():
            return False
    return True


def _text(stream: bytes | None) -> str:
    return (stream or b"").decode(errors="backslashreplace")


JUDGES = (_status, _error, _injection, _outputs, _documents, _rows, _carried)
