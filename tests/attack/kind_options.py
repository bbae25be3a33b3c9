"""Every option of every command with every kind of value: the app's own parameters are walked."""

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from case import ANY, FAILS, Case, Cases, written
from commands import DUMPS, PATHS, PLAN, READ_FILES, SWEPT, long_option, parameters
from dumps_of import sample
from values import N

from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.plans.presets import PRESETS
from rlcorr_cli.show.figures.kinds import KINDS as PICTURES

DUMP, PART = "dump.parquet", "part.rlcorr"
NUMBERS = (
    *("0", "-1", "1", "2", "7", "2147483648", "4294967296", "9223372036854775807", "9223372036854775808"),
    *("18446744073709551616", "1" + "0" * 400, "-" + "9" * 5_000, "0x10", "1_000", "1e3", " 1", "१", "½"),
    *("0.5", "nan", "inf", "-inf", "1e308", "-1e308", "1e-320", "1e400", "-0.0", "1,5", "None", "true"),
)
TEXTS = (
    *(
        "",
        " ",
        "-",
        "--",
        "--json",
        "a",
        "é𝄞\u202e",
        "\x1b[31mred\x1b]8;;http://x\x07",
        "a\nb",
        "\udcff",
        "%s{0}$(id)`",
    ),
    *("::error::x", "a\n::add-mask::b", "##[error]x", "a ##[stop-commands]b", "[red]x[/red]", "[/]", "=", "=a", "a="),
    *(
        "kl=",
        "=1",
        "kl=1",
        "kl=nan",
        "kl=inf",
        "kl=1e308",
        "kl=-1",
        "kl=5%",
        "kl=1e400%",
        "kl=1=2",
        "none=1",
        "kl==",
        "*",
    ),
    *("ratio.token", "ratio.token:", "ratio.token:,", "ratio.token:2,1", "ratio.token:nan,", "ratio.token:-inf,inf"),
    *("ratio.token:0.5,2", "k3.seq_max:,1e400", "x.y:1,2", "ratio.seq_mean:1,1", "prob_gap.token:,1e-320", "a:b:c"),
    *("step=number", "reward=note", "old_log_probs=number", "sample_id=reward", "step=none", "x" * 300, "y" * 100_000),
    *("number", "note", "reward", "response_mask", "cuda", "cuda:99", "cuda:-1", "meta", "mps", "cpu:7", "auto"),
)
NAMES = (*PRESETS, *list(PICTURES), *list(DEFINITIONS)[:6])
"""Values that some option takes; every option is tried with each of them."""
VALUES = (*NUMBERS, *TEXTS, *NAMES)
SMALL = ("--seed", "--limit", "--workers")
"""What goes along with an option by lot."""


def cases() -> Cases:
    """All of them."""
    for command, parameter in parameters():
        if parameter.param_type_name == "argument":
            yield from _arguments(command, parameter.name)
        elif parameter.is_flag:
            yield _case(command, long_option(parameter), "a flag", long_option(parameter))
            yield _case(command, long_option(parameter), "a flag twice", *[long_option(parameter)] * 2)
            yield _case(command, long_option(parameter), "a flag with a value", f"{long_option(parameter)}=1")
        else:
            yield from _values(command, parameter)


def _values(command: str, parameter: Any) -> Iterator[Case]:
    option = long_option(parameter)
    choices = getattr(parameter, "choices", None) or getattr(getattr(parameter, "type", None), "choices", ())
    for value in dict.fromkeys((*VALUES, *map(str, choices))):
        yield _case(command, option, _name(value), *_joined(option, value), outputs=_outputs(parameter, value))
    yield _case(command, option, "no value", option)
    yield _case(command, option, "twice", option, "1", option, "2", outputs=_outputs(parameter, "1", "2"))
    for flag, value in (("--json", "\x1b::error::x ##[error]y"), ("--debug", "\x1b::error::x ##[error]y\n::error::z")):
        yield _case(command, option, flag, option, value, flag, outputs=_outputs(parameter, value))


def _joined(option: str, value: str) -> tuple[str, ...]:
    """A value that looks like an option is its option's own only when joined to it."""
    return (f"{option}={value}",) if value.startswith("-") and option.startswith("--") else (option, value)


def _name(value: str) -> str:
    text = value.encode("unicode_escape", "surrogatepass").decode()
    return repr(text if len(text) < 90 else f"{text[:20]}... {len(text)}")


def _outputs(parameter: Any, *values: str) -> tuple[str, ...]:
    is_path = (parameter.metavar or "") in PATHS and long_option(parameter) not in READ_FILES
    names = [str(PurePosixPath(value)) for value in values if value.strip("./") and "\0" not in value]
    return tuple(names) if is_path else ()


def _arguments(command: str, name: str) -> Iterator[Case]:
    """What is no option."""
    for value in VALUES:
        given = ("--", value) if value.startswith("-") else (value,)
        before = ("show",) if name == "name" and command == "presets" else ()
        yield _case(command, f"more {name}", _name(value), *before, *given)
        yield _case(command, f"only {name}", _name(value), *before, *given, alone=True)


def _case(
    command: str, option: str, value: str, *args: str, outputs: tuple[str, ...] = (), alone: bool = False
) -> Case:
    line: tuple[str, ...] = (command,) if alone else (command, *_base(command, option))
    return Case(
        kind="options",
        factors=(f"{command} {option}", value),
        args=(*line, *args),
        set_up=written(DUMP, sample()),
        outputs=(*outputs, "out.parquet", "out.svg", *DEFAULTS),
        statuses=frozenset(ANY | ({FAILS} if command == "check" else set())),
        rows=N if option.startswith("--") and option != "--limit" else None,
        dump=DUMP if option.startswith("--") else None,
    )


DEFAULTS = tuple(f"dump.{kind}.png" for kind in PICTURES)
"""Where `plot` writes when it is not told."""


def _base(command: str, option: str) -> tuple[str, ...]:
    """What the command needs beside the option that is tried."""
    if command == "diff":
        return DUMP, DUMP
    if command not in DUMPS:
        return ()
    needed = {
        "filter": () if option in ("--preset", "--plan", "--profile") else PLAN,
        "sweep": () if option == "--rs" else SWEPT,
        "plot": () if option == "--kind" else ("--kind", "ratio"),
    }.get(command, ())
    output = {"plot": ("-o", "out.svg")} | dict.fromkeys(("filter", "convert"), ("-o", "out.parquet"))
    output = output.get(command, ())
    return (DUMP, *needed, *(() if option == "--output" else output))
