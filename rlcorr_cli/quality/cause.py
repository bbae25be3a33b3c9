"""Cause: a row of the tables of causes; of files that were written wrongly, or of two policies that differ."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["file", "policy"]
KINDS: dict[Kind, str] = {
    "file": "of whole files, suspected from their first rows",
    "policy": "of a gap between the policies, found from sums over all rows",
}


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a dump's numbers are what they are.

    meaning: what is the matter.  looks: what it leaves in the data.  certainty: how sure one can be.  alike: what else
    looks like it.  advice: what to do.  source: which framework is known for it, or the fact that this rests on.
    is_fault: whether it is a fault or a setting to be fixed, so that bounds and weights would treat a consequence.
    """

    name: str
    kind: Kind = "policy"
    meaning: str
    looks: str
    certainty: str
    alike: str
    advice: str
    source: str = ""
    is_fault: bool = False
