"""KINDS: the pictures, each a function of a Report.

A new one is a panel in the module of its subject and a row in `kinds.py`.
"""

from rlcorr_cli.present.figures import own_settings

own_settings.load()  # before any module that imports matplotlib

from rlcorr_cli.present.figures.kinds import KINDS, Drawn, Kind, draw  # noqa: E402

__all__ = ["KINDS", "Drawn", "Kind", "draw"]
