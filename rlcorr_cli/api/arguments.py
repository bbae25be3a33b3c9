"""Arguments that several functions of the API take, checked and made into the values that the pipeline takes."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, get_args

from rlcorr_cli.errors import UsageError, not_one_of, shortened
from rlcorr_cli.files import output_path
from rlcorr_cli.places import STDIN
from rlcorr_cli.reading.bad_rows import BadRowAction, BadRowPolicy, NonfiniteAction
from rlcorr_cli.reading.request import MOST_ROWS, MOST_WORKERS, EngineName, ReadRequest

if TYPE_CHECKING:
    from rlcorr_cli.runs.computing import Computing


class ArrowStream(Protocol):
    """What pyarrow, polars, pandas, duckdb and datasets hand their tables over by."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Files = str | Path | Sequence[str | Path]
Paths = Files | ArrowStream | Mapping[str, Any]
"""A dump: files, or a table in memory."""
Names = str | Sequence[str]

SAVE_FIRST = "Save it as .parquet or .jsonl, and name that file."


def request(
    dumps: Paths,
    *,
    group_by: Names = (),
    cluster_by: str | None = None,
    format: str = "auto",
    columns: Mapping[str, str] | None = None,
    batch_by: str | None = None,
    limit: int | None = None,
    bad_rows: BadRowPolicy | None = None,
) -> ReadRequest:
    """The dump to read, and how."""
    refuse_outside(1, MOST_ROWS, limit=limit)
    if cluster_by is not None:
        names("cluster_by", cluster_by)
    return ReadRequest(
        paths=paths(dumps),
        format=format,
        columns=_columns(columns),
        group_by=names("group_by", group_by),
        cluster_by=cluster_by,
        batch_by=batch_by,
        limit=limit,
        bad_rows=_policy(bad_rows),
    )


def computing(
    device: Any,
    batch_tokens: int | None,
    *,
    engine: Any = "auto",
    workers: int | None = None,
    threads: int | None = None,
    ray_address: Any = None,
) -> "AbstractContextManager[Computing]":
    """Where and in what portions to compute, while a run lasts.  threads: how many of the engine of that name."""
    from rlcorr_cli.runs.computing import computing

    refuse_outside(1, MOST_WORKERS, threads=threads, workers=workers)
    refuse_outside(1, MOST_ROWS, batch_tokens=batch_tokens)
    if not isinstance(device, str):
        raise UsageError(f"device should be a name such as 'cpu', not {kind_of(device)}.", 'Write device="auto".')
    one_of("--engine", engine, EngineName)
    if threads is not None and (workers is not None or engine not in ("auto", "threads")):
        raise UsageError("--threads stands for --engine threads --workers.", "Name the engine and its --workers alone.")
    if ray_address is not None and (engine != "ray" or not isinstance(ray_address, str)):
        raise UsageError("--ray-address is a string that goes with --engine ray.", "Add --engine ray, or leave it out.")
    name = engine if threads is None else "threads"
    return computing(device, batch_tokens, engine=name, workers=workers or threads, ray_address=ray_address)


def refuse_stdin_twice(*dumps: Sequence[str]) -> None:
    """A UsageError where standard input is among the files of more than one dump: it can be read only once."""
    if sum(STDIN in files for files in dumps) > 1:
        raise UsageError("Standard input holds one dump.", "Name the others as files.")


def several(values: Any) -> list[Any]:
    """What a list or a tuple holds, or else the one value."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def paths(dumps: Any) -> tuple[str, ...]:
    """The names of a dump's files, or of one table in memory, which carries it."""
    if isinstance(dumps, str | Path):
        return (dumps if isinstance(dumps, str) else str(dumps),)
    if not isinstance(dumps, (list, tuple)):
        from rlcorr_cli.reading.tables import in_memory

        table = in_memory(dumps)
        if table is not None:
            return (table,)
    listed = several(dumps)
    for path in listed:
        if not isinstance(path, str | Path):
            raise UsageError(f"dumps should be a path, a list of paths or a table, not {kind_of(path)}.", SAVE_FIRST)
    if not listed:
        raise UsageError("dumps is empty: there is nothing to read.", "Name a file, a directory or a glob.")
    return tuple(path if isinstance(path, str) else str(path) for path in listed)


def names(argument: str, values: Any) -> tuple[str, ...]:
    """One name or several."""
    listed = several(values)
    for name in listed:
        if not isinstance(name, str):
            raise UsageError(f"{argument} should be a name, or a list of names, not {kind_of(name)}.", "Name columns.")
        if not name:
            raise UsageError(f"{argument} holds an empty name.", "Name columns.")
    return tuple(listed)


def refuse_outside(least: int, most: int, **values: Any) -> None:
    """Refuse what is no whole number between two ends, both allowed; None stands for a default."""
    for name, value in values.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise UsageError(
                f"{name} should be a whole number from {least} to {most}, not {shortened(value)}.", "Leave it out."
            )


def one_of(option: str, value: Any, choices: Any) -> Any:
    """The value if the choices (a Literal, or a tuple) hold it."""
    allowed: tuple[str, ...] = get_args(choices) or choices
    if value not in allowed:
        raise not_one_of(option, value, allowed)
    return value


def _columns(columns: Any) -> dict[str, str]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping) or not all(isinstance(x, str) for pair in columns.items() for x in pair):
        raise UsageError(
            f"columns should map canonical names to the dump's columns, and is {kind_of(columns)}.",
            'Write columns={"old_log_probs": "log_probs"}.',
        )
    return dict(columns)


def _policy(bad_rows: Any) -> BadRowPolicy:
    """What to do about bad rows, if it can be done."""
    if bad_rows is None:
        return BadRowPolicy()
    if not isinstance(bad_rows, BadRowPolicy):
        raise UsageError(f"bad_rows should be a BadRowPolicy, not {kind_of(bad_rows)}.", 'Write BadRowPolicy("skip").')
    action = one_of("--on-bad-row", bad_rows.action, BadRowAction)
    one_of("--nonfinite", bad_rows.nonfinite, NonfiniteAction)
    if bad_rows.quarantine is not None and action == "skip":
        raise UsageError("--on-bad-row skip leaves nothing for --quarantine.", "Use one of the two.")
    if bad_rows.quarantine is None and action == "quarantine":
        raise UsageError("--on-bad-row quarantine needs a place.", "Add --quarantine bad.parquet, or .jsonl.")
    if action == "error" and bad_rows.max_fraction is not None:
        raise UsageError("--max-bad-fraction needs --on-bad-row skip or quarantine.", "Add --on-bad-row skip.")
    if bad_rows.quarantine is not None:
        return replace(bad_rows, quarantine=output_path("--quarantine", bad_rows.quarantine))
    return bad_rows


def kind_of(value: Any) -> str:
    """A value's type, to be read in a sentence: 'a DataFrame', 'an int'."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
