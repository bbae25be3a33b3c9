"""SUSPICIONS: what a dump as a whole looks like when it was written wrongly, with the numbers that say so.

A suspicion is a warning with evidence: it changes no number and refuses no file.  Each looks at the first rows of one
file; thresholds stand beside it, set so that real clean dumps stay silent.  The table loads without numpy, because
`rlcorr explain` lists it; what measures imports numpy when it is called.
"""

from rlcorr_cli.quality.anomalies.sample import Pairs, Sample
from rlcorr_cli.quality.anomalies.table import SUSPICIONS, Suspected, Suspicion, suspect

__all__ = ["SUSPICIONS", "Pairs", "Sample", "Suspected", "Suspicion", "suspect"]
