"""What a shell is offered for the values of options: names from the tables that the code uses.

Each function gives values with what they are.  Tables are loaded when one is asked for; columns are read only from a
file that is named before them, from its footer or its first line.
"""

from collections.abc import Mapping
from typing import Any

FIRST_LINE = 2**24
"""A longer first line of a file of JSON lines is not read for its columns."""

OBJECTIVE = "objective/"
"""What the names of an objective's numbers begin with."""

Offers = list[tuple[str, str]]


def offers_of(names: Mapping[str, str], end: str = "") -> Offers:
    """Names with one line on each; end: what must follow a name."""
    return [(name + end, " ".join(about.split())) for name, about in names.items()]


def presets() -> Offers:
    """Every preset, its aliases first: they are shorter."""
    from rlcorr_cli.plans.presets import ALIASES, PRESETS

    return offers_of({name: PRESETS[ALIASES.get(name, name)].when for name in (*ALIASES, *PRESETS)})


def preset_words() -> Offers:
    """What `rlcorr presets` takes: a preset, or a framework."""
    from rlcorr_cli.plans.presets import PRESET_FAMILIES

    listed = ("list", "Every preset, with what it is for.")
    return [*offers_of(PRESET_FAMILIES), ("show", "One preset, with its plan file."), listed, *presets()]


def writable_frameworks() -> Offers:
    """Every framework whose config `presets --for` writes."""
    from rlcorr_cli.frameworks.write import names

    return [(name, f"The lines for {name}'s config.") for name in names()]


def profiles() -> Offers:
    """Every profile."""
    from rlcorr_cli.metrics.framework_names import RELEASES

    return offers_of(RELEASES)


def rejections() -> Offers:
    """Each statistic at each scope: 'ratio.seq_mean:'."""
    from rlcorr_cli.plans.plan import SCOPES, STATISTICS

    return offers_of({f"{row.name}.{scope}": row.formula for row in STATISTICS.values() for scope in SCOPES}, ":")


def varied() -> Offers:
    """What `rlcorr sweep --vary` takes."""
    weights = [("is.high", "The upper bound of the weights."), ("is.low", "Their lower bound.")]
    return [*weights, *((name.removesuffix(":"), about) for name, about in rejections())]


def weight_scopes() -> Offers:
    """Each scope of weights, bounds to follow: 'token:'."""
    from typing import get_args

    from rlcorr_cli.plans.plan import WeightScope

    return [(f"{scope}:", "") for scope in get_args(WeightScope)]


def limited_metrics(incomplete: str) -> Offers:
    """Every metric as a rule names it: 'kl='; an objective's once one is begun: 'objective/ppo/loss='."""
    if not incomplete.startswith(OBJECTIVE):
        return [
            *offers_of(_metrics(), "="),
            *([(OBJECTIVE, "")] if incomplete and OBJECTIVE.startswith(incomplete) else []),
        ]
    from rlcorr_cli.metrics.objective import by_full_name

    return offers_of({name: definition.meaning for name, definition in by_full_name().items()}, "=")


def _metrics() -> dict[str, str]:
    from rlcorr_cli.metrics.catalog import DEFINITIONS

    return {name: definition.meaning for name, definition in DEFINITIONS.items()}


def explained() -> Offers:
    """What `rlcorr explain` takes."""
    from rlcorr_cli.show.explain import explainable_names

    about = {**_metrics(), **dict(presets())}
    return [(name, about.get(name, "")) for name in explainable_names()]


def devices() -> Offers:
    """Where to compute."""
    return [("cpu", "NumPy."), ("cuda", "torch on a GPU."), ("torch", "torch on a CPU."), ("auto", "cpu, so far.")]


def causes() -> Offers:
    """What `diagnose` may fail on."""
    from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE

    return offers_of({ANY_CAUSE: "Any but noise.", **{name: row.meaning for name, row in ALL_CAUSES.items()}})


def failures() -> Offers:
    """What `check` may fail on."""
    from rlcorr_cli.results.policy import FLAGS

    return [*causes(), *((flag, "") for flag in FLAGS)]


def group_columns(ctx: Any) -> list[str]:
    """The columns that rows can be grouped by: those of single values."""
    return [name for name, is_list in _columns(ctx).items() if not is_list]


def columns(ctx: Any) -> list[str]:
    """Every column."""
    return list(_columns(ctx))


def _columns(ctx: Any) -> dict[str, bool]:
    """The columns of the first file of the dump that is named before, and whether each holds lists; none of what cannot
    be read at once.

    ctx: typer's, which gives it by this name.  Of a line that ends in an option without its value typer leaves the
    arguments unparsed.
    """
    from rlcorr_cli.errors import RlcorrError
    from rlcorr_cli.reading.formats import by_suffix

    typed = ctx.params.get("dumps") or ctx.params.get("source") or ctx.args
    path = next(iter(typed), "")
    try:
        match by_suffix(path):
            case "parquet":
                from rlcorr_cli.reading.dump import schema_of

                return {name: "list<" in kind for name, kind in schema_of([path]).items()}
            case "jsonl":
                return _keys_of_first_line(path)
            case _:
                return {}
    except (OSError, EOFError, RlcorrError):
        return {}


def mapped_columns(ctx: Any, incomplete: str) -> list[str]:
    """'old_log_probs=', and after the sign the columns of the dump that is named before."""
    from rlcorr_cli.reading.names import COLUMNS

    canonical, equals, _ = incomplete.partition("=")
    if not equals:
        return [f"{name}=" for name in COLUMNS]
    return [f"{canonical}={column}" for column in columns(ctx)]


def _keys_of_first_line(path: str) -> dict[str, bool]:
    import gzip
    import json

    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        line = file.readline(FIRST_LINE)
    try:
        row: Any = json.loads(line)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        return {}
    return {name: isinstance(value, list) for name, value in row.items()} if isinstance(row, dict) else {}
