"""What a picture shows as a table: a row for each point, so that others can draw it again in their own way.

The table is read from the finished picture, so it holds what was drawn: curves with the ends of their bands or arms,
bars and steps of histograms by their middle, cells of a mesh with their count as low and high, and reference lines, of
which only x or y is known.
"""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PolyCollection, QuadMesh
from matplotlib.colors import to_rgb
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import StepPatch

HEADINGS = ("panel", "series", "x", "y", "low", "high")
REFERENCE = "reference line"
Row = tuple[Any, ...]
Point = tuple[float | str | None, float | str | None, float | None, float | None]
"""x, y, low and high, None of what is not known."""


def table(figure: Figure) -> bytes:
    """CSV of HEADINGS.  panel: its title, which stands on the left; series: the legend's name, else that of the y axis,
    or of the x axis where y has none; REFERENCE of a line across the panel that has no name."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADINGS)
    for ax in figure.axes:
        if ax.get_title(loc="left"):  # a bar of colours has none
            writer.writerows(["" if _is_blank(value) else value for value in row] for row in _rows(ax))
    return text.getvalue().encode()


def _is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not np.isfinite(value))


def _rows(ax: Any) -> Iterator[Row]:
    panel, unnamed = ax.get_title(loc="left"), ax.get_ylabel() or ax.get_xlabel()
    bands = [each for each in ax.collections if isinstance(each, PolyCollection)]
    arms = [each for each in ax.containers if isinstance(each, ErrorbarContainer)]
    arm_lines = [line for arm in arms for line in (arm.lines[0], *arm.lines[1])]
    series: list[tuple[Any, Iterator[Point]]] = [(arm, _of_arms(arm)) for arm in arms]
    series += [(line, _of_line(line, ax, bands)) for line in ax.lines if line not in arm_lines]
    bars = [each for each in ax.containers if isinstance(each, BarContainer)]
    series += [(each, _of_bars(each)) for each in bars]
    series += [(steps, _of_steps(steps)) for steps in ax.patches if isinstance(steps, StepPatch)]
    series += [(mesh, _of_cells(mesh)) for mesh in ax.collections if isinstance(mesh, QuadMesh)]
    of_x, of_y = (_names(axis, bars) for axis in (ax.xaxis, ax.yaxis))
    for artist, points in series:
        label = str(artist.get_label())
        is_named = label and not label.startswith("_")
        name = label if is_named else REFERENCE if _is_across(artist, ax) else unnamed
        yield from ((panel, name, of_x.get(x, x), of_y.get(y, y), low, high) for x, y, low, high in points)


def _names(axis: Any, bars: Sequence[BarContainer]) -> dict[Any, str]:
    """The name at each place of the axis on which bars stand, where it has names."""
    stand = "vertical" if axis.axis_name == "x" else "horizontal"
    if all(each.orientation != stand for each in bars):
        return {}
    named = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
    return {float(at): text.get_text() for at, text in named if text.get_text()}


def _of_line(line: Any, ax: Any, bands: list[PolyCollection]) -> Iterator[Point]:
    """A curve with the ends of its band; of a line across the whole panel, which is level or upright, what it marks."""
    if _is_across(line, ax):
        is_level = line.get_transform() == ax.get_yaxis_transform(which="grid")
        at = float((line.get_ydata() if is_level else line.get_xdata())[0])
        yield (None, at, None, None) if is_level else (at, None, None, None)
        return
    ends = next((_ends(band) for band in bands if _belongs(band, line)), dict[float, tuple[float, float]]())
    for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True):
        low, high = ends.get(float(x), (None, None))
        yield float(x), float(y), low, high


def _is_across(artist: Any, ax: Any) -> bool:
    """Whether it is a line across the whole panel."""
    return isinstance(artist, Line2D) and artist.get_transform() != ax.transData


def _of_arms(arm: Any) -> Iterator[Point]:
    """Points with arms; y is unknown where only the arms are drawn, and so is x where these lie flat."""
    line, _, bars = arm.lines
    segments = [segment.tolist() for collection in bars for segment in collection.get_segments()]
    values = [None] * len(segments) if line is None else [float(y) for y in line.get_ydata()]
    for y, ((x, low), (end, high)) in zip(values, segments, strict=True):
        yield (x, y, low, high) if x == end else (None, low, x, end)


def _of_bars(bars: Any) -> Iterator[Point]:
    """The middle of each bar, and its end."""
    for bar in bars:
        x, y, width, height = map(float, (bar.get_x(), bar.get_y(), bar.get_width(), bar.get_height()))
        is_upright = bars.orientation != "horizontal"
        middle = round(x + width / 2 if is_upright else y + height / 2, 9)
        yield (middle, y + height, None, None) if is_upright else (x + width, middle, None, None)


def _of_steps(steps: Any) -> Iterator[Point]:
    """The middle of each step of a histogram, and how high it is."""
    values, edges, _ = steps.get_data()
    for value, low, high in zip(values, edges[:-1], edges[1:], strict=True):
        yield float(low + high) / 2, float(value), None, None


def _of_cells(mesh: Any) -> Iterator[Point]:
    """The middle of each cell that is not empty; its count stands in place of low and high."""
    corners = mesh.get_coordinates()
    middle = (corners[:-1, :-1] + corners[1:, 1:]) / 2
    counts = np.ma.filled(np.ma.asarray(mesh.get_array(), float), 0.0).reshape(middle.shape[:2])
    for row, column in np.argwhere(counts > 0).tolist():
        x, y = middle[row, column].tolist()
        yield x, y, float(counts[row, column]), float(counts[row, column])


def _belongs(band: PolyCollection, line: Any) -> bool:
    """Whether a band is of a curve: it has its colour, and all its x are among the curve's."""
    colours: Any = band.get_facecolor()
    at = {float(x) for x in line.get_xdata()}
    return tuple(colours[0][:3]) == to_rgb(line.get_color()) and at >= _ends(band).keys()


def _ends(band: PolyCollection) -> dict[float, tuple[float, float]]:
    """The lower and the upper end of a band by x."""
    points = np.concatenate([np.asarray(path.vertices) for path in band.get_paths()])
    at = {x: points[points[:, 0] == x, 1] for x in np.unique(points[:, 0]).tolist()}
    return {x: (float(y.min()), float(y.max())) for x, y in at.items()}
