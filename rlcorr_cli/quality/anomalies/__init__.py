"""ANOMALIES: what a dump as a whole looks like when it was written wrongly, with the numbers that say so.

An anomaly is a warning with evidence: it changes no number and refuses no file.  Each is sought in the first rows of
a file; its thresholds stand beside it, set so that real clean dumps raise none.  The table loads without numpy, because
`rlcorr explain` lists it; what measures imports numpy when it is called.
"""

from rlcorr_cli.quality.anomalies.sample import Pairs, Sample
from rlcorr_cli.quality.anomalies.table import ANOMALIES, Anomaly, AnomalyFinding, find_anomalies

__all__ = ["ANOMALIES", "Anomaly", "AnomalyFinding", "Pairs", "Sample", "find_anomalies"]
