"""The names of rlcorr for Python: every command as a function, with plain arguments and typed results.

The command line calls the same functions.  Everything that goes wrong with a dump or an argument is an
`errors.RlcorrError`.  A name's module loads when the name is first asked for: all of them take a sixth of the start of
`analyze`.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.commands.choosing import PlanLike as PlanLike
    from rlcorr_cli.commands.choosing import choose_objective as choose_objective
    from rlcorr_cli.commands.choosing import choose_plan as choose_plan
    from rlcorr_cli.commands.comparing import compare as compare
    from rlcorr_cli.commands.converting import convert as convert
    from rlcorr_cli.commands.diagnosing import diagnose as diagnose
    from rlcorr_cli.commands.differing import diff as diff
    from rlcorr_cli.commands.drawing import Picture as Picture
    from rlcorr_cli.commands.drawing import plot as plot
    from rlcorr_cli.commands.drawing import save as save
    from rlcorr_cli.commands.drawing import to_html as to_html
    from rlcorr_cli.commands.judging import check as check
    from rlcorr_cli.commands.merging import merge as merge
    from rlcorr_cli.commands.reading import analyze as analyze
    from rlcorr_cli.commands.reading import correct as correct
    from rlcorr_cli.commands.reading import filter_dump as filter_dump
    from rlcorr_cli.commands.reading import inspect as inspect
    from rlcorr_cli.commands.reading import inspect_row as inspect_row
    from rlcorr_cli.commands.sweeping import sweep as sweep
    from rlcorr_cli.plans import presets as presets
    from rlcorr_cli.plans.plan import Plan as Plan
    from rlcorr_cli.reading.bad_rows import BadRowPolicy as BadRowPolicy
    from rlcorr_cli.results.report import Report as Report

HOMES = {
    "BadRowPolicy": "reading.bad_rows",
    "Picture": "commands.drawing",
    "Plan": "plans.plan",
    "PlanLike": "commands.choosing",
    "Report": "results.report",
    "analyze": "commands.reading",
    "check": "commands.judging",
    "choose_objective": "commands.choosing",
    "choose_plan": "commands.choosing",
    "compare": "commands.comparing",
    "convert": "commands.converting",
    "correct": "commands.reading",
    "diagnose": "commands.diagnosing",
    "diff": "commands.differing",
    "filter_dump": "commands.reading",
    "inspect": "commands.reading",
    "inspect_row": "commands.reading",
    "merge": "commands.merging",
    "plot": "commands.drawing",
    "presets": "plans",
    "save": "commands.drawing",
    "sweep": "commands.sweeping",
    "to_html": "commands.drawing",
}
"""Each public name, and the module that it is of."""

__all__ = [*HOMES]


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'rlcorr_cli.api' has no attribute '{name}'")
    if name == "presets":
        return import_module("rlcorr_cli.plans.presets")
    return getattr(import_module(f"rlcorr_cli.{HOMES[name]}"), name)
