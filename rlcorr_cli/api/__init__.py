"""Every command as a function: plain arguments named like its options, typed results, no terminal.

The command line calls these same functions.  Everything that goes wrong with a dump or an argument is an
`errors.RlcorrError`, whose message speaks of arguments.  A new command is a function in one of these modules, in its
`@speaks_of_arguments`, and a name here.

A module loads when one of its names is first asked for: all of them take a sixth of the start of `analyze`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.api.choosing import PlanLike, choose_objective, choose_plan
    from rlcorr_cli.api.comparing import compare
    from rlcorr_cli.api.converting import convert
    from rlcorr_cli.api.diagnosing import diagnose
    from rlcorr_cli.api.differing import diff
    from rlcorr_cli.api.drawing import Picture, plot, save, to_html
    from rlcorr_cli.api.judging import check
    from rlcorr_cli.api.merging import merge
    from rlcorr_cli.api.reading import analyze, correct, filter_dump, inspect, inspect_row
    from rlcorr_cli.api.sweeping import sweep
    from rlcorr_cli.reading.bad_rows import BadRowPolicy
    from rlcorr_cli.results.report import Report

__all__ = [
    "BadRowPolicy",
    "Picture",
    "PlanLike",
    "Report",
    "analyze",
    "check",
    "choose_objective",
    "choose_plan",
    "compare",
    "convert",
    "correct",
    "diagnose",
    "diff",
    "filter_dump",
    "inspect",
    "inspect_row",
    "merge",
    "plot",
    "save",
    "sweep",
    "to_html",
]

_HOMES = {
    "api.choosing": ("PlanLike", "choose_objective", "choose_plan"),
    "api.comparing": ("compare",),
    "api.converting": ("convert",),
    "api.diagnosing": ("diagnose",),
    "api.differing": ("diff",),
    "api.drawing": ("Picture", "plot", "save", "to_html"),
    "api.judging": ("check",),
    "api.merging": ("merge",),
    "api.reading": ("analyze", "correct", "filter_dump", "inspect", "inspect_row"),
    "api.sweeping": ("sweep",),
    "reading.bad_rows": ("BadRowPolicy",),
    "results.report": ("Report",),
}
"""Module -> the names it has for callers."""


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'rlcorr_cli.api' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(f"rlcorr_cli.{home}"), name)
