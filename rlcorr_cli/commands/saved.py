"""Saved totals in the place of dumps: `analyze`, `compare`, `diagnose` and `sweep` add those of their own command.

`saved_parts` tells totals from dumps, `added` adds them, and `refuse_conflicting` refuses an option that conflicts with
what they were measured with.  The command then makes its result of the sum, as it makes it of a dump.  Options that say
where to compute change nothing, because nothing is computed.
"""

import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from rlcorr_cli.commands.arguments import READING, How, Names, Read, computing, names, paths, request
from rlcorr_cli.commands.declared import Opt, changed, several
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import located
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.show.forms import TOTALLED

if TYPE_CHECKING:
    from rlcorr_cli.causes.features import Yardstick
    from rlcorr_cli.results.saved_runs import SavedRun

AllowOverlap = Annotated[
    bool, Opt(help="Saved totals only: add files even if they share rows.", panel=READING, rare=True)
]
S = TypeVar("S", bound="SavedRun")
R = TypeVar("R")


def saved_parts(dumps: Any, *, allow_overlap: bool = False) -> tuple[str, ...]:
    """The files of saved totals that stand in the place of a dump, globs among them; none where a dump is named."""
    named = several(dumps)
    texts = [str(each) for each in named if isinstance(each, str | Path)]
    totals = [text for text in texts if located(text).lower().endswith(TOTALLED)]
    if not totals:
        if allow_overlap:
            what = "⟦allow_overlap True⟧ applies to saved totals alone, and a dump is named."
            raise UsageError(what, "Leave it out.")
        return ()
    if len(totals) < len(named):
        other = next(text for text in texts if text not in totals) if len(texts) == len(named) else "a table"
        raise UsageError(
            f"{totals[0]} holds saved totals and {other} is a dump: they cannot be added.",
            "Name files of totals alone; save those of the dump with ⟦output⟧ first.",
        )
    parts: list[str] = []
    for text in totals:
        if glob.has_magic(text):
            from rlcorr_cli.reading.find import files  # here, because it loads pyarrow

            parts += files([text])
        else:
            parts.append(located(text))
    return tuple(parts)


def added(parts: Sequence[str], kind: type[S], how: How, *, group_by: Names = (), allow_overlap: bool) -> tuple[str, S]:
    """The sum of all parts, and the file that comes first.

    kind: the command's totals.  how: options of reading a dump; one that is set is refused, because totals are read
    already.
    """
    from rlcorr_cli.runs.saved import added as add

    for name in changed(how, Read):
        raise UsageError(f"⟦{name}⟧ applies to reading a dump, and {parts[0]} holds saved totals.", "Leave it out.")
    return add(parts, kind, group_by=names("group_by", group_by), allow_overlap=allow_overlap, watch=how.watch)


def result_of(path: str, run: S, make: Callable[[S], R]) -> R:
    """The result of a run; a DataError where totals that were read from a file do not belong together."""
    from rlcorr_cli.results.saved_totals import AGAIN
    from rlcorr_cli.totals.view import UnknownTotalError

    try:
        return make(run)
    except UnknownTotalError as error:
        raise DataError(f"{path} was written by another release of rlcorr: it has no {error.args[0]}.", AGAIN) from None
    except (ValueError, TypeError, LookupError, ArithmeticError) as error:
        why = f"{error}" or type(error).__name__
        raise DataError(f"{path} holds totals that do not belong together: {why}.", AGAIN) from error


def yardstick(clean: Any, how: How) -> "Yardstick | None":
    """What a clean dump shows, or what was saved of it; None where none is named."""
    if clean is None:
        return None
    from rlcorr_cli.results.saved import is_report
    from rlcorr_cli.results.yardstick import yardstick_in, yardstick_of

    named = paths(clean)
    if is_report(named):
        return yardstick_in(named[0])
    from rlcorr_cli.runs.diagnose import diagnose

    reading = request(clean, Read(map=how.map, nonfinite=how.nonfinite, above_zero=how.above_zero))
    with computing(how) as compute:
        clean_dump = diagnose(reading, computing=compute, watch=how.watch)
    return yardstick_of(
        named[0], clean_dump.whole.diagnosis, None if clean_dump.voiding is None else clean_dump.verdict
    )


def other_plan(asked: Plan, held: Plan) -> str | None:
    """What to call the plan that is asked for; None where it is the one that is held, whatever that is called."""
    if asked.id == held.id:
        return None
    return asked.name if asked.name != held.name else f"another {asked.name}"


def refuse_conflicting(path: str, asked: Mapping[str, tuple[Any, Any]]) -> None:
    """A UsageError of the first option that conflicts with what totals were measured with.

    asked: option -> (what it says, None where it was not named; what the totals were measured with).
    """
    for option, (wanted, held) in asked.items():
        if wanted is not None and wanted != held:
            says = "was measured without" if held in (None, "") else f"was measured with {held}"
            raise UsageError(
                f"{option}: {wanted} is asked for, and {path} {says}.",
                "Leave it out, or measure the dump again.",
            )
