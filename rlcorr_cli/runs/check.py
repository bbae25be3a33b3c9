"""check(): a report's numbers held to a policy."""

from dataclasses import replace

from rlcorr_cli.results.checked import (
    Checked,
    Fault,
    Measurements,
    cause_findings,
    failures,
    flag_findings,
    unjudged_warnings,
)
from rlcorr_cli.results.diagnosed import DiagnosedDump
from rlcorr_cli.results.policy import FLAGS, FailOn, Policy, apply
from rlcorr_cli.results.rules import with_remedies


def check(measurements: Measurements, policy: Policy, diagnosed: DiagnosedDump | None = None) -> Checked:
    """Every rule and limit of a policy on the measurements that it looks at; faults of the data come first.

    diagnosed: the same dump, where the policy fails on its cause.
    """
    judged = apply(policy, measurements.sections)
    findings = with_remedies(judged.findings, measurements.situation)
    if policy.strict:
        findings = tuple(replace(f, status="fail") if f.status == "warn" else f for f in findings)
    flags: list[FailOn] = [flag for flag in FLAGS if flag in policy.fail_on]
    of_flags = tuple(finding for flag in flags for finding in flag_findings(flag, measurements.sections))
    of_causes = () if diagnosed is None else tuple(cause_findings(diagnosed))
    faults_fail = policy.strict or "anomaly" in policy.fail_on
    anomalies = () if faults_fail else measurements.faults
    causes = () if diagnosed is not None or measurements.cause is None else (measurements.cause,)
    unjudged: tuple[tuple[FailOn, tuple[Fault, ...]], ...] = (("cause", causes), ("anomaly", anomalies))
    return Checked(
        measurements=measurements,
        n_rules=judged.n_rules + len(flags) + (diagnosed is not None),
        findings=(*(failures(measurements.faults) if faults_fail else ()), *of_causes, *of_flags, *findings),
        notes=(*measurements.notes, *unjudged_warnings((*causes, *anomalies)), *judged.notes),
        unjudged=tuple(flag for flag, faults in unjudged if faults),
    )
