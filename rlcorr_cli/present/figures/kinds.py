"""The kinds of picture: which panels each holds, and how they are laid out, captioned and written."""

from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlcorr_cli.present.figures import courses, panels, style
from rlcorr_cli.report.report import Report
from rlcorr_cli.report.trends import Missing

Panel = Callable[[Axes, Report], str]


@dataclass(frozen=True)
class Kind:
    """A picture.  about: the question it answers.  panels: rows of (title, panel).  size: of each, in inches."""

    about: str
    panels: tuple[tuple[tuple[str, Panel], ...], ...]
    size: tuple[float, float] = (5.2, 3.6)

    @property
    def columns(self) -> int:
        """How many panels stand side by side."""
        return max(map(len, self.panels))


@dataclass(frozen=True)
class Drawn:
    """A finished picture, or (figure None) the reason why there is none."""

    kind: str
    figure: Figure | None
    caption: str

    @property
    def columns(self) -> int:
        """How many panels stand side by side."""
        return KINDS[self.kind].columns

    def write(self, suffix: str, dpi: int = 150) -> bytes:
        """The picture as png, svg or pdf; the same report gives the same bytes."""
        assert self.figure is not None
        paper = BytesIO()
        stamps = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with style.styled():
            self.figure.savefig(paper, format=suffix, dpi=dpi, metadata=stamps[suffix])  # type: ignore[arg-type]
        return paper.getvalue()


KINDS: dict[str, Kind] = {
    "overview": Kind(
        "one page: how far apart, where, and what a plan makes of it",
        (
            (("How far apart", panels.ratio), ("Where: by surprise", panels.surprise), ("By place", panels.position)),
            (
                ("By length", panels.length_spread),
                ("Both policies", panels.log_probabilities),
                ("Over groups", courses.k3_course),
            ),
        ),
        (4.6, 3.4),
    ),
    "metrics": Kind(
        "the six curves that trainers log, over steps",
        (
            (
                ("Mean weight", courses.mean_weight),
                ("Sample size", courses.sample_size),
                ("Rejection", courses.rejected),
            ),
            (("Divergence", courses.divergence), ("Perplexity", courses.perplexity), ("χ²", courses.chi2)),
        ),
        (4.2, 3.0),
    ),
    "ratio": Kind("how the log-ratio is distributed", ((("Log-ratio", panels.ratio),),), (7.5, 4.2)),
    "scatter": Kind(
        "one policy against the other",
        ((("Probabilities", panels.probabilities), ("Log-probs", panels.log_probabilities)),),
        (5.2, 4.4),
    ),
    "surprise": Kind("whether the gap is one of unlikely tokens", ((("By surprise", panels.surprise),),), (7.0, 4.2)),
    "position": Kind("whether the gap grows along the context", ((("By place", panels.position),),), (7.0, 4.2)),
    "length": Kind(
        "what length does to sequence ratios and to rejection",
        ((("Sequence log-ratio", panels.length_spread), ("Acceptance", panels.length_kept)),),
    ),
    "weights": Kind(
        "how the plan's weights lie, and who carries the gradient",
        ((("Applied weights", panels.weights), ("Who carries it", panels.gradient)),),
        (5.2, 4.0),
    ),
    "staleness": Kind("what lag between versions costs", ((("By lag", courses.staleness),),), (7.0, 4.2)),
}


def draw(kind: str, report: Report) -> Drawn:
    """One picture of a report.  Panels without data say so in their place; if all are, there is no picture."""
    layout = KINDS[kind]
    n_rows, n_columns = len(layout.panels), layout.columns
    captions: list[str] = []
    missing: list[str] = []
    with style.styled():
        figure = style.blank(layout.size[0] * n_columns, layout.size[1] * n_rows)
        for i, row in enumerate(layout.panels):
            for j, (title, panel) in enumerate(row):
                ax = figure.add_subplot(n_rows, n_columns, i * n_columns + j + 1)
                ax.set_title(title)
                try:
                    captions.append(panel(ax, report))
                except Missing as reason:
                    missing.append(str(reason))
                    style.sentence(ax, str(reason))
    if not captions:
        return Drawn(kind, None, " ".join(dict.fromkeys(missing)))
    return Drawn(kind, figure, _caption(kind, captions))


def _caption(kind: str, captions: list[str]) -> str:
    if kind == "metrics":
        text = "; ".join(captions)
        return f"{text[0].upper()}{text[1:]}."
    return " ".join(captions[:2] if kind == "overview" else captions)
