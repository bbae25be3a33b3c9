"""`compare`'s flags as findings of `check`: the two that need no more than what every report measures.

`moved` is none of them: it takes advantages and true sequence weights, which `compare` alone holds together.
"""

from collections.abc import Iterable

from rlcorr_cli.errors import DataError
from rlcorr_cli.report.recommend import FAR_TOKEN_TV, FEW_TOKENS_TV, USABLE_TOKEN_ESS, flags_of
from rlcorr_cli.rules.judge import Finding, Section, Status
from rlcorr_cli.rules.policy import FailOn

_NEEDS = ("token_ess", "token_tv")
_SAYS = {
    "far": f"too far apart for any correction to be safe (token_ess below {USABLE_TOKEN_ESS:g}, or token_tv above "
    f"{FAR_TOKEN_TV:g})",
    "outliers": f"a few tokens carry the gap (token_ess below {USABLE_TOKEN_ESS:g} at a token_tv below "
    f"{FEW_TOKENS_TV:g})",
}
_FIXES = {
    "far": "Find the cause of the gap first; `rlcorr compare DUMP` shows what each correction would leave.",
    "outliers": "Zero or drop these tokens; `rlcorr inspect DUMP --worst 5` shows them.",
}


def flagged(flag: FailOn, sections: Iterable[Section]) -> list[Finding]:
    """A finding for each section, which fails where the flag holds."""
    return [_finding(flag, section) for section in sections]


def _finding(flag: FailOn, section: Section) -> Finding:
    lacking = [name for name in _NEEDS if name not in section.values]
    if lacking:
        raise DataError(
            f"--fail-on {flag} looks at {lacking[0]}, which the report does not have.",
            "Measure the dump anew: name the dump itself, or a report of this release.",
        )
    ess, variation = (section.values[name] for name in _NEEDS)
    if variation is None:  # no valid token: as of a rule, what nobody can judge does not pass
        return _of(flag, section, "fail", f"{flag} has no data.")
    holds = flag in flags_of({"token_ess": ess, "token_tv": variation})
    numbers = f"token_ess {_number(ess)}, token_tv {_number(variation)}"
    if holds:
        return _of(flag, section, "fail", f"{flag}: {_SAYS[flag]}: {numbers}.")
    return _of(flag, section, "ok", f"{flag} is absent: {numbers}.")


def _of(flag: FailOn, section: Section, status: Status, message: str) -> Finding:
    return Finding(
        key=section.key,
        metric=flag,
        value=None,
        rule="absent",
        severity="fail",
        status=status,
        fix=_FIXES[flag],
        message=message,
    )


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.3g}"
