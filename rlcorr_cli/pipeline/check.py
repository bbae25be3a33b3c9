"""check(): a report's numbers held to a policy."""

from rlcorr_cli.report.checked import Checked, Measurements
from rlcorr_cli.rules.policy import Policy, apply


def check(measurements: Measurements, policy: Policy) -> Checked:
    """Every rule and limit of a policy on the measurements that it looks at."""
    judged = apply(policy, measurements.sections)
    return Checked(
        measurements=measurements,
        n_rules=judged.n_rules,
        findings=judged.findings,
        notes=(*measurements.notes, *judged.notes),
    )
