"""What commands share: the arguments of many, each declared once, and the values that runs take made of them."""

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.declared import TEXT, Act, Opt, PythonOnly, kind_of, several
from rlcorr_cli.errors import UsageError, not_one_of, shortened
from rlcorr_cli.files import output_path
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import STDIN
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.bad_rows import AboveZeroAction, BadRowPolicy, NonfiniteAction
from rlcorr_cli.reading.formats import NAMES, STREAMED
from rlcorr_cli.reading.request import MOST_ROWS, MOST_SEED, MOST_WORKERS, EngineName, ReadRequest
from rlcorr_cli.show.forms import FORMS, PAGES, SHEETS, TOTALLED_SHEETS
from rlcorr_cli.show.stdout import reading_bar

if TYPE_CHECKING:
    from rlcorr_cli.runs.computing import Computing
    from rlcorr_cli.runs.reading import Watch

READING = "Reading the dump"
PLAN = "Correction plan"
OBJECTIVE = "Policy objective"
COMPUTING = "Computing"
LOOKING = "What to look at"
JOINING = "Two engines"
COMPARING = "Comparing"
WATCHING = "Watching"
RULES = "Rules"
OUTPUT = "Output"
PANELS = ("", "Options", READING, JOINING, PLAN, OBJECTIVE, COMPUTING, LOOKING, COMPARING, WATCHING, RULES, OUTPUT)
"""The headings of a command's --help, in order."""


class ArrowStream(Protocol):
    """What pyarrow, polars, pandas and duckdb hand their tables over by."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


class Dataset(Protocol):
    """A Dataset of Hugging Face's `datasets`."""

    def with_format(self, type: str | None = None) -> Any: ...


Files = str | Path | Sequence[str | Path]
Paths = Files | ArrowStream | Dataset | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""A dump: files, or a table in memory."""
Names = str | Sequence[str]

SAVE_FIRST = "Save it as .parquet or .jsonl, and name that file."

Dumps = Annotated[
    Paths,
    Opt(
        help=f"Files, directories, globs, or - for {STREAMED.title} on stdin.",
        python="Or a table in memory: of pyarrow, polars, pandas, duckdb or datasets, a list of rows, a mapping of "
        "tensors.",
        typed=list[str],
        metavar="DUMP...",
    ),
]
DUMPS_OR_REPORT = Opt(
    help="A dump, or one report.json of `analyze -o`.", python="Or a Report.", typed=list[str], metavar="DUMP..."
)
FormatName = Annotated[
    str,
    Opt(
        help=f"What the dump is: auto, {', '.join(NAMES)}.",
        panel=READING,
        metavar="NAME",
        offers=("auto", *NAMES),
        rare=True,
    ),
]


def mapping(pairs: Any) -> dict[str, str]:
    """Canonical name -> the dump's column, of a mapping or of texts 'canonical=column'."""
    if isinstance(pairs, Mapping):
        return dict(pairs)
    columns: dict[str, str] = {}
    for pair in several(() if pairs is None else pairs):
        canonical, equals, column = pair.partition("=")
        if not equals or not canonical or not column:
            raise UsageError(
                f"Cannot read ⟦map {pair}⟧.", "Write ⟦map CANONICAL=COLUMN⟧, such as ⟦map old_log_probs=log_probs⟧."
            )
        if canonical in columns:
            raise UsageError(f"⟦map⟧ names {canonical} twice.", "Map each canonical name once.")
        columns[canonical] = column
    return columns


Map = Annotated[
    Mapping[str, str] | Names | None,
    Opt(
        help="Name a column yourself, such as old_log_probs=logp. Repeatable.",
        python='Or a mapping: {"old_log_probs": "logp"}.',
        panel=READING,
        metavar="CANONICAL=COLUMN",
        should="map canonical names to the dump's columns",
        such_as="old_log_probs=log_probs",
        offers=completion.mapped_columns,
    ),
]
BatchBy = Annotated[
    str | None,
    Opt(
        help="Column that marks training batches, for --normalize batch and budgets (default: step), or none.",
        panel=READING,
        metavar="COLUMN",
        offers=completion.columns,
        rare=True,
    ),
]
Sample = Annotated[
    int | str | None,
    Opt(
        help="Look for the cause in so many tokens of whole rows (default: 550,000), or in all.",
        panel=READING,
        metavar="N|all",
        should="be a number of tokens or all",
        such_as="100000",
        rare=True,
    ),
]
Limit = Annotated[
    int | None, Opt(help="Read only the first N rows.", panel=READING, metavar="N", least=1, most=MOST_ROWS, rare=True)
]


OnBadRow = Annotated[Literal["error", "skip"], Opt(help="Stop at bad rows (default), or skip them.", panel=READING)]
Nonfinite = Annotated[
    NonfiniteAction,
    Opt(
        help="NaN or infinity on a valid token: reject the row (error), mask the token (mask), or keep a missing "
        "rollout log-prob at ratio 1, as TRL does (keep).",
        panel=READING,
        rare=True,
    ),
]
AboveZero = Annotated[
    AboveZeroAction,
    Opt(
        help="A log-prob a little above 0 (up to 0.25), as rounding to bf16 leaves: reject the row (error), or read 0 "
        "(clamp).",
        panel=READING,
        rare=True,
    ),
]
Device = Annotated[
    str,
    Opt(
        help="Where to compute. auto: cpu, until it is measured from how many tokens on a GPU is faster.",
        panel=COMPUTING,
        metavar="<auto|cpu|torch|cuda|cuda:N>",
        such_as="cpu",
        offers=completion.devices,
        rare=True,
    ),
]
BatchTokens = Annotated[
    int | None,
    Opt(help="Tokens per batch of a worker.", panel=COMPUTING, metavar="N", least=1, most=MOST_ROWS, rare=True),
]


Engine = Annotated[
    EngineName,
    Act(
        help="How the dump is read: by threads, worker processes, or tasks on a Ray cluster. auto: threads or "
        "processes.",
        panel=COMPUTING,
        rare=True,
    ),
]
Workers = Annotated[
    int | None,
    Opt(
        help="Number of threads, processes or tasks (default: one per core).",
        panel=COMPUTING,
        metavar="N",
        least=1,
        most=MOST_WORKERS,
        rare=True,
    ),
]
RayAddress = Annotated[
    str | None,
    Act(
        help="The cluster of --engine ray, or local for one of this run's own; default RAY_ADDRESS, or one that "
        "runs here, or local.",
        panel=COMPUTING,
        metavar="HOST:PORT",
        rare=True,
    ),
]


@frozen(kw_only=True, eq=False)
class Read:
    """How a dump is read, which every command is told alike."""

    format: FormatName = "auto"
    map: Map = None
    batch_by: BatchBy = None
    limit: Limit = None
    sample: Sample = None
    on_bad_row: OnBadRow = "error"
    quarantine: Annotated[
        str | Path | None,
        Act(help="Skip bad rows and write them here: .jsonl, .parquet.", panel=READING, metavar="PATH", rare=True),
    ] = None
    max_bad_fraction: Annotated[
        float | None,
        Opt(
            help="Largest share of bad rows allowed (default: 0 with error, else 0.5).",
            panel=READING,
            metavar="SHARE",
            least=0,
            most=1,
            rare=True,
        ),
    ] = None
    nonfinite: Nonfinite = "error"
    above_zero: AboveZero = "error"


@frozen(kw_only=True, eq=False)
class Computed:
    """Where and in what portions it is computed."""

    device: Device = "cpu"
    batch_tokens: BatchTokens = None
    engine: Engine = "auto"
    workers: Workers = None
    ray_address: RayAddress = None


def progress_bar(quiet: bool) -> "Watch | None":
    """A progress bar where there is a terminal to draw it on."""
    return None if quiet or sys.stderr is None or not sys.stderr.isatty() else reading_bar


Watching = Annotated[
    "Watch | None", PythonOnly("Called with the bytes to come; a context around the reading.", otherwise=progress_bar)
]


@frozen(kw_only=True, eq=False)
class HowRead(Computed, Read):
    """How a dump is read and computed."""


@frozen(kw_only=True, eq=False)
class How(HowRead):
    """The same, and who watches how far it is."""

    watch: Watching = None


GroupBy = Annotated[
    Names,
    Opt(
        help="Metrics for each value of a column. Repeatable.",
        panel=READING,
        metavar="COLUMN",
        offers=completion.group_columns,
    ),
]
ClusterBy = Annotated[
    str | None,
    Opt(
        help="Column whose rows are resampled together for intervals (default: the prompts; see rlcorr help "
        "intervals), or none.",
        panel=READING,
        metavar="COLUMN|none",
        offers=completion.columns,
        rare=True,
        setting="cluster_by",
    ),
]


def _clean_dump(*, rare: bool) -> Opt:
    return Opt(
        help="A clean dump of the same model, or what diagnose or analyze saved of it: .json, .rlcorr. Noise is "
        "measured by it, so weights of fewer bits stand out.",
        python="Or a table in memory.",
        panel=READING,
        typed=TEXT,
        metavar="FILE",
        rare=rare,
    )


CleanDump = Annotated[Paths | None, _clean_dump(rare=False)]
RareCleanDump = Annotated[Paths | None, _clean_dump(rare=True)]
Pool = Annotated[bool, Opt(help="Treat all steps as one: ignore the step column.", panel=READING)]
ModeName = Annotated[Mode | None, Opt(help="Trained policy: old (decoupled), current (bypass).", panel=READING)]
Seed = Annotated[
    int,
    Opt(
        help="Seed of the bootstrap intervals.",
        panel=COMPUTING,
        metavar="N",
        least=0,
        most=MOST_SEED,
        rare=True,
        setting="seed",
    ),
]
Json = Annotated[bool, Opt(help="Print the result as JSON.", panel=OUTPUT)]
Quiet = Annotated[
    bool, Opt(help="No progress bar, and no line on files written.", panel=OUTPUT, flags=("--quiet", "-q"))
]
Debug = Annotated[bool, Opt(help="Verbose log and full tracebacks.", panel=OUTPUT, rare=True)]


def _output(help: str) -> Act:
    """An option of files that are written beside what is printed."""
    return Act(help=help, panel=OUTPUT, flags=("--output", "-o"), metavar="FILE")


Outputs = Annotated[
    Files, _output(f"Also write the report to FILE: {', '.join(FORMS)}; .tb is for TensorBoard. Repeatable.")
]
PageOutputs = Annotated[Files, _output(f"Also write it to FILE: {', '.join(PAGES)}. Repeatable.")]
SheetOutputs = Annotated[Files, _output(f"Also write it to FILE: {', '.join(SHEETS)}. Repeatable.")]
TotalledOutputs = Annotated[Files, _output(f"Also write it to FILE: {', '.join(TOTALLED_SHEETS)}. Repeatable.")]
Overwrite = Annotated[bool, Act(help="Replace an existing output.", panel=OUTPUT)]
Junit = Annotated[str | Path | None, Act(help="Also write JUnit XML to FILE.", panel=OUTPUT, metavar="FILE")]


def groups(how: Any) -> tuple[str, ...]:
    """The columns that rows are grouped by; none by options of a command that has no groups."""
    return names("group_by", getattr(how, "group_by", ()))


def request(dumps: Paths, how: Read) -> ReadRequest:
    """The dump to read, and how, by a command's options."""
    return ReadRequest(
        paths=paths(dumps),
        format=how.format,
        columns=mapping(how.map),
        group_by=groups(how),
        cluster_by=getattr(how, "cluster_by", None),
        batch_by=how.batch_by,
        limit=how.limit,
        bad_rows=bad_row_policy(how),
        sample=_sample(how.sample),
    )


def _sample(tokens: int | str | None) -> int | None:
    """How many tokens the cause is looked for in; all are as many as there can be."""
    if tokens is None or tokens == "all":
        return None if tokens is None else MOST_ROWS
    number = int(tokens) if isinstance(tokens, str) and tokens.isdecimal() and len(tokens) < 17 else tokens
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MOST_ROWS:
        message = f"⟦sample⟧ should be a number of tokens or all, not {shortened(str(tokens))}."
        raise UsageError(message, "Write ⟦sample 100000⟧ or ⟦sample all⟧.")
    return number


def computing(how: Computed) -> "AbstractContextManager[Computing]":
    """Where and in what portions to compute, while a run lasts."""
    from rlcorr_cli.runs import computing as engines

    workers, batch_tokens, ray_address = how.workers, how.batch_tokens, how.ray_address
    device, engine = how.device, how.engine
    if ray_address is not None and engine != "ray":
        raise UsageError("⟦ray_address⟧ is a string that goes with ⟦engine ray⟧.", "Add ⟦engine ray⟧, or leave it out.")
    return engines.computing(device, batch_tokens, engine=engine, workers=workers, ray_address=ray_address)


def refuse_stdin_twice(*dumps: Sequence[str]) -> None:
    """A UsageError where standard input is among the files of more than one dump: it can be read only once."""
    if sum(STDIN in files for files in dumps) > 1:
        raise UsageError("Standard input can hold one dump only.", "Name the others as files.")


def paths(dumps: Any) -> tuple[str, ...]:
    """The names of a dump's files, or of one table in memory, which carries it."""
    if isinstance(dumps, str | Path):
        return (dumps if isinstance(dumps, str) else str(dumps),)
    listed = several(dumps)
    if not all(isinstance(path, str | Path) for path in listed):
        from rlcorr_cli.reading.tables import in_memory

        table = in_memory(dumps)
        if table is not None:
            return (table,)
    for path in listed:
        if not isinstance(path, str | Path):
            raise UsageError(f"dumps should be a path, a list of paths or a table, not {kind_of(path)}.", SAVE_FIRST)
    if not listed:
        raise UsageError("dumps is empty: there is nothing to read.", "Name a file, a directory or a glob.")
    return tuple(path if isinstance(path, str) else str(path) for path in listed)


def names(argument: str, values: Any) -> tuple[str, ...]:
    """One name or several."""
    listed = several(values)
    if "" in listed:
        raise UsageError(f"{argument} holds an empty name.", "Name columns.")
    return tuple(listed)


def causes_named(fail_on: Names, *, also: Sequence[str] = ()) -> tuple[str, ...]:
    """The names in 'top_p,min_p' of --fail-on; one that is none is refused before the dump is read.

    also: what a command that judges numbers, too, can fail on.
    """
    from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE
    from rlcorr_cli.results.policy import FLAGS

    listed = tuple(name for text in names("fail_on", fail_on) for name in text.split(","))
    for name in listed:
        if name in FLAGS and name not in also:
            message = f"⟦fail_on {name}⟧ is of numbers, and diagnose looks for causes."
            raise UsageError(message, f"Write `⟦check(DUMP)⟧ ⟦fail_on {name}⟧`.")
        if name not in (ANY_CAUSE, *ALL_CAUSES, *also):
            raise not_one_of("⟦fail_on⟧", name, (ANY_CAUSE, *also, *ALL_CAUSES))
    return listed


def bad_row_policy(how: Read) -> BadRowPolicy:
    """What to do about bad rows."""
    action, quarantine, most = how.on_bad_row, how.quarantine, how.max_bad_fraction
    policy = BadRowPolicy(action=action, max_fraction=most, nonfinite=how.nonfinite, above_zero=how.above_zero)
    if quarantine is not None:  # a file for bad rows asks to go on without them
        return replace(policy, action="quarantine", quarantine=output_path("⟦quarantine⟧", quarantine))
    if action == "error" and most is not None:
        raise UsageError("⟦max_bad_fraction⟧ needs ⟦on_bad_row skip⟧ or ⟦quarantine⟧.", "Add ⟦on_bad_row skip⟧.")
    return policy
