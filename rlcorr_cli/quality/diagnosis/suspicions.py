"""What is suspected of a dump's files, once the gap has been looked into."""

from collections.abc import Iterable

from rlcorr_cli.quality.anomalies import AnomalyFinding
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding, Diagnosis


def unexplained(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> tuple[AnomalyFinding, ...]:
    """The anomalies without those that the likely cause makes by itself."""
    explained = () if diagnosis.cause is None else diagnosis.cause.explains
    return tuple(each for each in anomalies if each.name not in explained)


def standing_cause(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> CauseFinding | None:
    """The likely cause; None where an anomaly voids the numbers that it was read from, which is the verdict then."""
    return None if any(each.voids for each in unexplained(anomalies, diagnosis)) else diagnosis.cause
