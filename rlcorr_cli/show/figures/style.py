"""How pictures look: colours that colour-blind people tell apart and grey prints keep apart, thin lines, no frills.

Colours are Okabe and Ito's.  Text from a dump is never read as mathematics, and shown in one printable line.
"""

import math
import textwrap
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedFormatter
from matplotlib.transforms import Bbox

from rlcorr_cli.show.figures import own_settings
from rlcorr_cli.show.stdout import clean_cut

INK, PAPER, GRID, PALE = "#16181d", "#ffffff", "#d9dce1", "#eef0f3"
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#6b7280"
MAP = "cividis"
LONGEST = 40
LEGEND_ROOM = 60
"""Characters in one row of a legend, of which each entry's line takes six."""
PER_INCH, LINE = 16.4, 0.165
"""Below a picture: characters to an inch, and inches to a line."""
LEGEND: Any = {
    "loc": "lower left",
    "bbox_to_anchor": (0, 1),
    "borderaxespad": 0.2,
    "borderpad": 0.1,
    "columnspacing": 1.2,
    "labelspacing": 0.25,
    "handletextpad": 0.5,
}

RC: Any = {
    "font.family": ["DejaVu Sans", "sans-serif"],
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
    "pdf.fonttype": 42,  # TrueType: publishers refuse Type 3
    "svg.hashsalt": "rlcorr",
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "axes.formatter.useoffset": False,
    "axes.formatter.limits": (-5, 7),
    "path.simplify": True,
}


SMALL: Any = {"font.size": 7.5, "axes.titlesize": 8, "axes.labelsize": 7.5, "legend.fontsize": 7}
"""Of narrow panels, beside RC."""


@contextmanager
def styled(*, small: bool = False) -> Generator[None]:
    """The matplotlib settings in which every picture is drawn and saved.  small: whether its panels are narrow."""
    with own_settings.settings({**RC, **SMALL} if small else RC):
        yield


class Layout(ConstrainedLayoutEngine):
    """matplotlib's, to nine decimals: the last digits of its solver change from run to run, and with them an SVG's."""

    def execute(self, fig: Figure) -> None:
        """Place the axes."""
        super().execute(fig)
        for ax in fig.axes:
            ax.set_position(Bbox(np.round(ax.get_position(original=True).get_points(), 9)), which="original")
            ax.set_in_layout(True)  # which set_position ends


def blank(width: float, height: float) -> Figure:
    """An empty figure, in inches; not registered anywhere, so nothing has to close it."""
    return Figure(figsize=(width, height), layout=Layout(w_pad=0.08, h_pad=0.06))


def save(figure: Figure, paper: BinaryIO, form: str, **options: Any) -> None:
    """Write a figure as a png, svg or pdf.  options: of `Figure.savefig`."""

    # savefig draws twice, and what the first time is for is the layout alone: so that is all that is made then.
    def lay_out(renderer: RendererBase) -> None:
        del figure.draw
        engine = figure.get_layout_engine()
        assert engine is not None
        engine.execute(figure)

    figure.draw = lay_out  # pyrefly: ignore[method-assign]  # for one call
    figure.savefig(paper, format=form, **options)


def label(value: object, longest: int = LONGEST) -> str:
    """A value from a dump as a short printable text."""
    return clean_cut(value, longest)


def mark(ax: Axes, at: float, text: str, *, color: str = RED, vertical: bool = True, style: str = "--") -> None:
    """Draw a reference line; its name stands in the legend, where no curve hides it, once for all lines called so."""
    draw = ax.axvline if vertical else ax.axhline
    draw(at, color=color, linewidth=1, linestyle=style, label=once_in_legend(ax, text))


def fitted(ax: Axes, inches: float) -> None:
    """Break the labels of a narrow panel into lines that it has room for."""
    n = int(inches * PER_INCH * 0.75)
    ax.set_xlabel(textwrap.fill(ax.get_xlabel(), n))
    ax.set_ylabel(textwrap.fill(ax.get_ylabel(), n // 2))


def once_in_legend(ax: Axes, text: str) -> str:
    """What to call the next line, so that a legend has these words once."""
    return "_" if text in ax.get_legend_handles_labels()[1] else text


def heads(axes: Sequence[Axes]) -> None:
    """The titles, at one height, and below each, above the axes and off the data, the legend in as few rows as fit."""
    n_rows = max(map(_legend, axes))
    for ax in axes:
        # Only a power of ten above the y axis lifts a title, and labels of our own have none; where it is not told,
        # matplotlib measures every label, each time, to find out.
        y = 1.0 if isinstance(ax.yaxis.get_major_formatter(), FixedFormatter) else None
        ax.set_title(ax.get_title(loc="left"), y=y, pad=6 + 12.5 * n_rows)


def _legend(ax: Any) -> int:
    """Draw the legend; returns its rows."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return 0
    place = ax.get_subplotspec()
    inches = ax.figure.get_figwidth() / (1 if place is None else place.get_gridspec().ncols)
    room = min(LEGEND_ROOM, int(inches * PER_INCH * 0.85))
    n_columns = next(n for n in range(len(labels), 0, -1) if n == 1 or _legend_width(labels, n) <= room)
    n_rows = math.ceil(len(labels) / n_columns)
    # As many columns as rows of that many need: matplotlib would leave the last rows of more columns short.
    ax.legend(handles, labels, ncols=math.ceil(len(labels) / n_rows), **LEGEND)
    return n_rows


def _legend_width(labels: Sequence[str], n_columns: int) -> int:
    """Characters that a legend of so many columns is wide; its entries run down the columns."""
    n_rows = math.ceil(len(labels) / n_columns)
    columns = [labels[i : i + n_rows] for i in range(0, len(labels), n_rows)]
    return sum(6 + max(map(len, column)) for column in columns)


def foot(figure: Figure, lines: Sequence[tuple[str, bool]]) -> None:
    """Make the figure taller, and write lines below what is drawn.  Each: the text, and whether it is small print."""
    width, height = (float(inches) for inches in figure.get_size_inches())
    wrapped = [(row, small) for text, small in lines for row in textwrap.wrap(text, int(width * PER_INCH))]
    strip = (len(wrapped) * LINE + 0.1) if wrapped else 0.0
    figure.set_size_inches(width, height + strip)
    engine = figure.get_layout_engine()
    assert isinstance(engine, ConstrainedLayoutEngine)
    engine.set(rect=(0, strip / (height + strip), 1, height / (height + strip)))
    for i, (text, small) in enumerate(wrapped):
        y = (strip - 0.06 - i * LINE) / (height + strip)
        figure.text(0.08 / width, y, text, va="top", fontsize=7 if small else 8)
