"""Names beside points, none upon another: of points in a heap one is named, and a name without room is left out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from rlcorr_cli.show.figures import style

SIZE, LETTER, LINE = 7.0, 3.9, 8.0
"""Of a name's letters: their size, width and height, in points."""
NEAR = 4.0
"""Points of a picture closer than this, in points of 1/72 inch, are one heap."""
BESIDE = 9.0
"""A name farther above or below its point has a line to it."""
LEADER: Any = {"arrowstyle": "-", "color": style.GREY, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 3}
OFFSETS = (4.0, -9.0, 13.0, -18.0, 22.0, -27.0)
"""Heights at which a name is tried, above and below its point."""


@dataclass(frozen=True)
class _Box:
    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: "_Box") -> bool:
        """Whether any spot lies in both."""
        return (
            self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top
        )


def name_points(axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """Name points of axes whose limits are set.  points: x, y and name, the most important first."""
    scale = 72 / axes.figure.dpi
    frame = axes.get_window_extent()
    heaps: dict[tuple[float, float], list[int]] = {}
    for i, (x, y, _) in enumerate(points):
        place = tuple(float(pixels) * scale for pixels in axes.transData.transform((x, y)))
        near = next((heap for heap in heaps if max(abs(heap[0] - place[0]), abs(heap[1] - place[1])) < NEAR), place)
        heaps.setdefault((near[0], near[1]), []).append(i)
    taken = [_Box(x - 3, y - 3, x + 3, y + 3) for x, y in heaps]
    for (x, y), (first, *others) in heaps.items():
        text = style.label(points[first][2]) + (f" and {len(others)} more" if others else "")
        for box, side, offset in _places(x, y, LETTER * len(text)):
            if frame.x0 * scale <= box.left and box.right <= frame.x1 * scale and not any(map(box.meets, taken)):
                axes.annotate(
                    text,
                    points[first][:2],
                    xytext=offset,
                    textcoords="offset points",
                    ha=side,
                    fontsize=SIZE,
                    arrowprops=LEADER if abs(offset[1]) > BESIDE else None,
                )
                taken.append(box)
                break


def _places(x: float, y: float, width: float) -> Iterator[tuple[_Box, str, tuple[float, float]]]:
    """Where a name may stand: its box, the end that is anchored, and the anchor's offset."""
    for dy in OFFSETS:
        bottom, top = y + dy, y + dy + LINE
        yield _Box(x + 5, bottom, x + 5 + width, top), "left", (5, dy)
        yield _Box(x - 5 - width, bottom, x - 5, top), "right", (-5, dy)
        yield _Box(x - width / 2, bottom, x + width / 2, top), "center", (0, dy)
