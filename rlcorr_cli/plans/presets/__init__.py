"""PRESETS: name -> a named plan, one row each, with its source and when to take it.

A new preset is one row in `guide.py` (verl's guide), `verl.py` (verl 0.9) or `frameworks.py` (everybody else).  Sources
name framework, version and option; the records follow its documents or code.
"""

from rlcorr_cli.errors import UsageError, nearest
from rlcorr_cli.plans.presets import frameworks, guide, verl
from rlcorr_cli.plans.presets.preset import Preset

__all__ = ["ALIASES", "PRESETS", "Preset", "preset"]

_ROWS = (*guide.ROWS, *verl.ROWS, *frameworks.ROWS)

PRESETS: dict[str, Preset] = {row.name: row for row in _ROWS}

ALIASES: dict[str, str] = {alias: row.name for row in _ROWS for alias in row.aliases}


def preset(name: str) -> Preset:
    """The preset of a name or alias ('-' and '_' are the same)."""
    key = name.strip().lower().replace("-", "_")
    row = PRESETS.get(ALIASES.get(key, key))
    if row is None:
        near = nearest(key, [*PRESETS, *ALIASES])
        raise UsageError(f"Unknown preset '{name}'.", f"Nearest: {near}. `rlcorr presets` lists all.")
    return row
