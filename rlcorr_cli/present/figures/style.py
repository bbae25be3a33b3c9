"""How pictures look: colours that colour-blind people tell apart and grey prints keep apart, thin lines, no frills.

Colours are Okabe and Ito's.  Text from a dump is never read as mathematics, and shown in one printable line.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from rlcorr_cli.present.figures import own_settings
from rlcorr_cli.present.stdout import clean

INK, PAPER, GRID, PALE = "#16181d", "#ffffff", "#d9dce1", "#eef0f3"
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#6b7280"
MAP = "cividis"
LONGEST = 40

RC: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "legend.handlelength": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "rlcorr",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "path.simplify": True,
}


@contextmanager
def styled() -> Generator[None]:
    """The matplotlib settings in which every picture is drawn and saved."""
    with own_settings.settings(RC):
        yield


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches; not registered anywhere, so nothing has to close it."""
    return Figure(figsize=(width, height), layout="constrained")


def plain_numbers(axis: Axis, minor: bool = False) -> None:
    """Write ticks as 1,000 or 1e+06, because powers set as mathematics would need a dump's text to be read so, too."""
    form = FuncFormatter(lambda x, _: f"{x:.0e}" if abs(x) >= 1e6 or 0 < abs(x) < 1e-4 else f"{x:,g}")
    (axis.set_minor_formatter if minor else axis.set_major_formatter)(form)


def log_counts(axis: Axis) -> None:
    """Make an axis of counts logarithmic."""
    axis.axes.set_yscale("log")
    plain_numbers(axis)


def label(value: object) -> str:
    """A value from a dump as a short printable text."""
    text = clean(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def sentence(ax: Axes, text: str) -> None:
    """Write on a panel why it has nothing to draw."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, text, ha="center", va="center", wrap=True, color=GREY, transform=ax.transAxes)


def mark(ax: Axes, at: float, text: str, color: str = RED, vertical: bool = True, style: str = "--") -> None:
    """Draw a reference line with its name at its end."""
    if vertical:
        ax.axvline(at, color=color, linewidth=1, linestyle=style)
        ax.annotate(
            text, (at, 1), xycoords=("data", "axes fraction"), xytext=(2, -2), textcoords="offset points",
            rotation=90, va="top", ha="left", fontsize=7, color=color,
        )  # fmt: skip
    else:
        ax.axhline(at, color=color, linewidth=1, linestyle=style)
        ax.annotate(
            text, (1, at), xycoords=("axes fraction", "data"), xytext=(-2, 2), textcoords="offset points",
            va="bottom", ha="right", fontsize=7, color=color,
        )  # fmt: skip
