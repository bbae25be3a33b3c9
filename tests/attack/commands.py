"""Every command with every form of output, read from the product's own tables, so that a new one is tried by itself."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from rlcorr_cli.commands import app
from rlcorr_cli.reading.formats import WRITTEN
from rlcorr_cli.show.figures.kinds import KINDS as PICTURES
from rlcorr_cli.show.forms import FORMS, PAGES, SHEETS

PICTURE_SUFFIXES = (".png", ".svg", ".pdf")
READ_FILES = ("--plan", "--rules", "--baseline", "--clean-dump", "--join", "--tokenizer", "--throughput")
"""Options that name a file to read; every other option that names a path names an output."""
PATHS = ("PATH", "FILE", "DIR", "REPORT")
PLAN = ("--rs", "ratio.seq_mean:0.9,1.1", "--is", "token")
SWEPT = ("--vary", "ratio.seq_mean")
DUMPS = ("analyze", "diagnose", "compare", "sweep", "filter", "plot", "check", "inspect", "convert")
"""Commands that read a dump."""


@dataclass(frozen=True)
class Form:
    """A command on a dump in one form of output: arguments to put around the dump's name, and what they name.

    beside_itself: whether the dump is named twice.
    """

    args: tuple[str, ...]
    outputs: tuple[str, ...] = ()
    beside_itself: bool = False

    @cached_property
    def name(self) -> str:
        """As it is typed."""
        return " ".join(self.args)

    def on(self, dump: str, *more: str) -> tuple[str, ...]:
        """The command line on a dump."""
        dumps = (dump, dump) if self.beside_itself else (dump,)
        return (self.args[0], *dumps, *self.args[1:], *more)


def _form(command: str, *options: str, **named: str) -> Form:
    """A form with outputs, each given as option=path: `o="k.jsonl"`, `junit="j.xml"`."""
    args = [part for name, path in named.items() for part in (_option(name), path)]
    return Form((command, *options, *args), tuple(named.values()))


def _option(name: str) -> str:
    return f"-{name}" if len(name) == 1 else f"--{name.replace('_', '-')}"


@lru_cache(1)
def forms() -> tuple[Form, ...]:
    """All of them."""
    return tuple(_forms())


def _forms() -> Iterator[Form]:
    yield Form(("analyze",))
    yield Form(("analyze", *PLAN, "--json"))
    yield from (_form("analyze", o=f"r{suffix}") for suffix in FORMS if suffix != ".tb")
    yield _form("analyze", "--group-by", "step", o="r.tb")
    yield Form(("diagnose",))
    yield Form(("diagnose", "--json", "--group-by", "step"))
    yield Form(("diagnose", "--by", "step", "--fail-on", "cause"))
    yield Form(("compare",))
    yield Form(("compare", "--json", "--group-by", "step"))
    yield Form(("sweep", *SWEPT, "--target-keep", "0.9"))
    yield Form(("sweep", "--is", "token", "--vary", "is.high", "--target-ess", "0.9", "--json"))
    for suffix in SHEETS:
        if suffix not in PICTURE_SUFFIXES:  # the dump is too small for a diagnosis to have something to draw
            yield _form("diagnose", o=f"d{suffix}")
        yield _form("compare", o=f"c{suffix}")
        yield _form("sweep", *SWEPT, o=f"s{suffix}")
    yield Form(("diff",), beside_itself=True)
    yield Form(("diff", "--json", "--group-by", "step"), beside_itself=True)
    yield Form(("diff", "--junit", "j.xml"), ("j.xml",), beside_itself=True)
    # Of a dump and itself there is nothing to draw.
    sheets = [suffix for suffix in SHEETS if suffix not in PICTURE_SUFFIXES]
    yield from (Form(("diff", "-o", f"v{suffix}"), (f"v{suffix}",), beside_itself=True) for suffix in sheets)
    for suffix in (*WRITTEN, ""):
        yield _form("filter", *PLAN, o=f"k{suffix}")
        yield _form("filter", *PLAN, rejected_output=f"dropped{suffix}", o=f"k{suffix}")
    yield _form("filter", *PLAN, "--rejected", "keep", o="k.parquet")
    yield _form("filter", *PLAN, "--json", o="k.jsonl")
    yield _form("filter", *PLAN, "--resample", "20", o="k.jsonl")
    yield _form("filter", *PLAN, "--resample", "3", o="k.parquet")
    yield Form(("filter", *PLAN, "--dry-run"))
    yield from (_form("convert", o=f"c{suffix}") for suffix in WRITTEN)
    yield _form("convert", "--json", o="parts")
    yield Form(("inspect",))
    yield Form(("inspect", "--json"))
    yield Form(("inspect", "--worst", "2"))
    yield Form(("inspect", "--worst", "9", "--json"))
    yield Form(("inspect", "--row", "1"))
    yield Form(("inspect", "--row", "1", "--json"))
    yield Form(("inspect", "--row", "a"))
    yield _form("inspect", repro="report")
    yield from (_form("inspect", o=f"i{suffix}") for suffix in (".json", ".html", ".md", ".csv"))
    yield _form("watch", "--once", "--every", "0", state="w.rlcorr")
    yield _form("watch", "--once", "--every", "0", "--json", state="w.rlcorr")
    yield _form("watch", "--once", "--every", "0", tb="t", state="w.rlcorr")
    yield Form(("check",))
    yield Form(("check", "--json"))
    yield Form(("check", "--max", "k3_kl=1e-9"))
    yield _form("check", junit="j.xml")
    yield from (_form("check", o=f"c{suffix}") for suffix in PAGES)
    yield from (_form("plot", "--kind", kind, o="p.svg") for kind in PICTURES)
    yield from (_form("plot", "--json", o=f"p{suffix}") for suffix in PICTURE_SUFFIXES)


def forms_of_logs() -> Iterator[Form]:
    """The same of a command on a log of metrics."""
    yield from (_form("scalars", o=f"s{suffix}") for suffix in SHEETS)


@lru_cache(1)
def parameters() -> tuple[tuple[str, Any], ...]:
    """(command, parameter) of the whole app."""
    group: Any = app.built()
    return tuple((name, parameter) for name, command in group.commands.items() for parameter in command.params)


def long_option(parameter: Any) -> str:
    """The name of an option that says most."""
    return max(parameter.opts, key=len)


def output_options() -> list[tuple[str, str]]:
    """(command, option) that names what is written."""
    return [
        (command, long_option(parameter))
        for command, parameter in parameters()
        if parameter.param_type_name == "option"
        and (parameter.metavar or "") in PATHS
        and long_option(parameter) not in READ_FILES
    ]
