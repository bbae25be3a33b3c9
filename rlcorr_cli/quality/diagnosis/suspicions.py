"""What is suspected of a dump's files, once the gap has been looked into."""

from collections.abc import Iterable

from rlcorr_cli.quality.anomalies import AnomalyFinding
from rlcorr_cli.quality.diagnosis.diagnosis import CauseFinding, Diagnosis


def unexplained(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> tuple[AnomalyFinding, ...]:
    """The anomalies without those that the likely cause makes by itself."""
    explained = () if diagnosis.cause is None else diagnosis.cause.explains
    return tuple(each for each in anomalies if each.name not in explained)


def standing(
    anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis
) -> tuple[tuple[AnomalyFinding, ...], CauseFinding | None]:
    """The anomalies that stay unexplained, and the likely cause; None where one of them voids the numbers that it was
    read from, which is the verdict then."""
    left = unexplained(anomalies, diagnosis)
    return left, None if any(each.voids for each in left) else diagnosis.cause
