"""KINDS: the pictures, each a function of a Report.

A new one is a panel in the module of its subject and a row in `kinds.py`.  matplotlib is imported below here alone,
where it is under our settings from the first; what others need of it they take from here.
"""

from rlcorr_cli.show.figures import own_settings

own_settings.load()  # before any module that imports matplotlib

from matplotlib.axes import Axes  # noqa: E402

from rlcorr_cli.show.figures.kinds import (  # noqa: E402
    DPI,
    KINDS,
    SHEET,
    Drawn,
    Kind,
    Sheet,
    draw,
    drawn_picture,
    picture,
    pictures,
)

__all__ = ["DPI", "KINDS", "SHEET", "Axes", "Drawn", "Kind", "Sheet", "draw", "drawn_picture", "picture", "pictures"]
