"""KINDS: the pictures, each a function of a Report.

A new one is a panel in the module of its subject and a row in `kinds.py`.
"""

from rlcorr_cli.present.figures.kinds import KINDS, Drawn, Kind, draw

__all__ = ["KINDS", "Drawn", "Kind", "draw"]
