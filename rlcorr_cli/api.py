"""The names of rlcorr for Python: every command as a function, with plain arguments and typed results.

The command line calls the same functions.  Everything that goes wrong with a dump or an argument is an
`errors.RlcorrError`.  A name's module loads when the name is first asked for: all of them take a sixth of the start of
`analyze`.
"""

from importlib import import_module
from inspect import isfunction
from typing import TYPE_CHECKING, Any

from rlcorr_cli.records.record import Result

if TYPE_CHECKING:
    from rlcorr_cli.commands.analyze import analyze as analyze, diagnose as diagnose, inspect as inspect
    from rlcorr_cli.commands.browse import explain as explain, help as help, presets as presets
    from rlcorr_cli.commands.check import check as check
    from rlcorr_cli.commands.choose import (
        PlanLike as PlanLike,
        choose_objective as choose_objective,
        choose_plan as choose_plan,
    )
    from rlcorr_cli.commands.compare import compare as compare, diff as diff, sweep as sweep
    from rlcorr_cli.commands.filter import convert as convert, correct as correct, filter as filter
    from rlcorr_cli.commands.pictures import Picture as Picture, plot as plot, save as save, to_html as to_html
    from rlcorr_cli.commands.scalars import scalars as scalars
    from rlcorr_cli.commands.watch import watch as watch
    from rlcorr_cli.plans.plan import Plan as Plan
    from rlcorr_cli.results.report import Report as Report
    from rlcorr_cli.runs.recorder import Recorder as Recorder


def _html(result: Result) -> str:
    """What a notebook shows."""
    from rlcorr_cli.show import notebook

    return notebook.html(result)


Result.in_notebook = _html

NAMES = {
    "commands.analyze": ("analyze", "diagnose", "inspect"),
    "commands.browse": ("explain", "help", "presets"),
    "commands.check": ("check",),
    "commands.choose": ("PlanLike", "choose_objective", "choose_plan"),
    "commands.compare": ("compare", "diff", "sweep"),
    "commands.filter": ("convert", "correct", "filter"),
    "commands.pictures": ("Picture", "plot", "save", "to_html"),
    "commands.scalars": ("scalars",),
    "commands.watch": ("watch",),
    "plans.plan": ("Plan",),
    "results.report": ("Report",),
    "runs.recorder": ("Recorder",),
}
HOMES = {name: module for module, names in NAMES.items() for name in names}
"""Each public name, and the module that it is of."""

__all__ = [*HOMES]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'rlcorr_cli.api' has no attribute '{name}'")
    value = getattr(import_module(f"rlcorr_cli.{HOMES[name]}"), name)
    if isfunction(value):
        from rlcorr_cli.commands.declared import for_python

        value = for_python(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *HOMES})
