"""What `check --fail-on` adds to its rules, as findings: flags of `compare`, and the causes that `diagnose` names."""

from collections.abc import Iterable, Mapping
from typing import Any

from rlcorr_cli.causes.table import NOISE
from rlcorr_cli.errors import DataError
from rlcorr_cli.results.diagnosed import DiagnosedDump, DiagnosedGroup
from rlcorr_cli.results.judge import Finding, Section, Status
from rlcorr_cli.results.policy import FailOn
from rlcorr_cli.results.recommend import ERRORS, FAR_TOKEN_TV, FEW_TOKENS_TV, MOVED, USABLE_TOKEN_ESS, flags_of
from rlcorr_cli.results.report import plain_key

_APART = ("token_ess", "token_tv")
_NEEDS: Mapping[FailOn, tuple[str, ...]] = {
    "moved": ("advantage_shift", "advantage_shift_se"),
    "far": _APART,
    "outliers": _APART,
}
"""Flag -> what it is told by; without a number for the last, nobody can tell it."""
_BRINGS: Mapping[FailOn, str] = {
    "moved": "It takes the dump's advantages (--map advantages=COLUMN): name the dump itself, or a report of one that "
    "has them.",
}
_SAYS = {
    "moved": f"the policies earn differently, which is staleness (advantage_shift beyond {MOVED:g} and {ERRORS:g} "
    "standard errors)",
    "far": f"too far apart for any correction to be safe (token_ess below {USABLE_TOKEN_ESS:g}, or token_tv above "
    f"{FAR_TOKEN_TV:g})",
    "outliers": f"a few tokens carry the gap (token_ess below {USABLE_TOKEN_ESS:g} at a token_tv below "
    f"{FEW_TOKENS_TV:g})",
}
_FIXES = {
    "moved": "Sync the weights to the rollout engine more often; `rlcorr diagnose DUMP` shows the evidence.",
    "far": "Find the cause of the gap first; `rlcorr compare DUMP` shows what each correction would leave.",
    "outliers": "Zero or drop these tokens; `rlcorr inspect DUMP --worst 5` shows them.",
}


def flagged(flag: FailOn, sections: Iterable[Section]) -> list[Finding]:
    """A finding for each section, which fails where the flag holds."""
    return [_finding(flag, section) for section in sections]


def caused(dump: DiagnosedDump) -> list[Finding]:
    """A finding for the dump and each group, which fails where a cause other than noise is named."""
    return [_cause_finding(dump, group) for group in (dump.whole, *dump.groups)]


def _cause_finding(dump: DiagnosedDump, group: DiagnosedGroup) -> Finding:
    diagnosis, key = group.diagnosis, plain_key(group.key)
    voiding = dump.voiding if group is dump.whole else None
    if voiding is not None:
        return _of_cause(key, "fail", f"{voiding.name}: {voiding.evidence.rstrip('.')}.", voiding.fix)
    cause = diagnosis.cause
    if cause is None:
        return _of_cause(key, "ok", f"cause is absent: {diagnosis.conclusion}")
    bound = "at least" if cause.bound == "at_least" else "at most"
    what = f"{cause.headline}, {bound} {100 * cause.share:.0f} % of the gap."
    if cause.cause == NOISE:
        return _of_cause(key, "ok", f"cause is absent: {what}")
    return _of_cause(key, "fail", f"{cause.cause}: {what}", cause.advice)


def _of_cause(key: Mapping[str, Any], status: Status, message: str, fix: str | None = None) -> Finding:
    return _absent("cause", key, status, message=message, fix=fix)


def _absent(name: str, key: Mapping[str, Any], status: Status, *, message: str, fix: str | None) -> Finding:
    """That something is absent, or not."""
    return Finding(
        key=key,
        metric=name,
        value=None,
        rule="absent",
        severity="fail",
        status=status,
        fix=fix,
        message=message,
    )


def _finding(flag: FailOn, section: Section) -> Finding:
    needs = _NEEDS[flag]
    lacking = [name for name in needs if name not in section.values]
    if lacking:
        raise DataError(
            f"--fail-on {flag} looks at {lacking[0]}, which the report does not have.",
            _BRINGS.get(flag, "Measure the dump again: name the dump itself, or a report of this release."),
        )
    values = {name: section.values[name] for name in needs}
    if values[needs[-1]] is None:  # as of a rule, what nobody can judge does not pass
        return _of(flag, section, "fail", f"{flag} has no data.")
    numbers = ", ".join(f"{name} {_number(value)}" for name, value in values.items())
    # The other flags are of other numbers.
    if flag in flags_of(values):
        return _of(flag, section, "fail", f"{flag}: {_SAYS[flag]}: {numbers}.")
    return _of(flag, section, "ok", f"{flag} is absent: {numbers}.")


def _of(flag: FailOn, section: Section, status: Status, message: str) -> Finding:
    return _absent(flag, section.key, status, message=message, fix=_FIXES[flag])


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
