"""What is suspected of a dump's files, once the gap has been looked into."""

from collections.abc import Iterable

from rlcorr_cli.quality.anomalies import AnomalyFinding
from rlcorr_cli.quality.diagnosis.diagnosis import Diagnosis


def unexplained(anomalies: Iterable[AnomalyFinding], diagnosis: Diagnosis) -> tuple[AnomalyFinding, ...]:
    """The anomalies without swapped_columns where a temperature explains why tokens look drawn from the training
    column: rollout's log-probs are raw then, and not the training policy's."""
    raw = any(cause.parameters.get("drawn_from") == "training" for cause in diagnosis.causes)
    return tuple(each for each in anomalies if not (raw and each.name == "swapped_columns"))
