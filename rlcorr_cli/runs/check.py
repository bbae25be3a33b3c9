"""check(): a report's numbers and its story held to a policy."""

from dataclasses import replace

from rlcorr_cli.results.checked import Checked, Measurements, flag_findings, story_findings
from rlcorr_cli.results.policy import FLAGS, FailOn, Policy, apply
from rlcorr_cli.results.rules import with_remedies


def check(measurements: Measurements, policy: Policy) -> Checked:
    """The dump's story, then every rule and limit of a policy on the measurements that it looks at."""
    judged = apply(policy, measurements.sections)
    findings = with_remedies(judged.findings, measurements.situation)
    if policy.strict:
        findings = tuple(replace(f, status="fail") if f.status == "warn" else f for f in findings)
    flags: list[FailOn] = [flag for flag in FLAGS if flag in policy.fail_on]
    of_flags = tuple(finding for flag in flags for finding in flag_findings(flag, measurements.sections))
    of_story = story_findings(measurements.story, policy)
    return Checked(
        measurements=measurements,
        n_rules=judged.n_rules + len(flags),
        findings=(*of_story, *of_flags, *findings),
        not_judged=judged.not_judged,
        notes=(*measurements.notes, *judged.notes),
    )
