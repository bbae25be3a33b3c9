"""What a metric is, in words: one record per name, from which `explain`, the page, the schema and the manual speak."""

import math
from dataclasses import dataclass

MEASURED_ON = ("bf16 engine", "int8 weights", "fp32")
"""The three dumps of sample_data that `measured` is of: one model, sampled by engines of these precisions, and scored
again in fp32.  Metrics of weights are those of the preset token_is."""


@dataclass(frozen=True, kw_only=True)
class Definition:
    """One metric's definition.

    formula: in the letters of `symbols.py`.  ideal: its value where the policies are equal; None where there is no such
    value.  meaning: what it tells, in one sentence.  worry: when to look closer, beyond what a default rule on it says.
    can_be_negative: whether it can lie below 0: kl and a reward can, a share cannot.
    measured: its value in the dumps of MEASURED_ON.  source: whose definition it is; "" where it is plain counting.
    note: how this name departs from the metric of that definition: another's arithmetic, or a part of the tokens.
    """

    name: str
    formula: str
    unit: str
    meaning: str
    ideal: float | None = None
    can_be_negative: bool = False
    worry: str = ""
    measured: tuple[float, float, float] | None = None
    source: str = ""
    note: str = ""

    @property
    def lowest(self) -> float:
        """The least value that it can have."""
        return -math.inf if self.can_be_negative else 0.0

    @property
    def highest(self) -> float:
        """The largest value that it can have."""
        is_share = self.unit in ("share", "probability") or (self.unit == "none" and self.ideal == 1)
        return 1.0 if is_share else math.inf

    @property
    def typical(self) -> str:
        """Typical sizes in words: 'bf16 engine 0.0011, int8 weights 0.0039, fp32 6.9e-12'."""
        if self.measured is None:
            return ""
        return ", ".join(f"{engine} {value:.2g}" for engine, value in zip(MEASURED_ON, self.measured, strict=True))
