"""The kinds of picture: which panels each holds, and how they are laid out, captioned and written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlcorr_cli import __version__
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show.figures import by_step, courses, panels, style, weights
from rlcorr_cli.show.inputs import last_change
from rlcorr_cli.show.numbers import more, plural

Panel = Callable[[Axes, Report], str]


@dataclass(frozen=True)
class Kind:
    """A picture.  about: the question it answers.  panels: (title, panel), in reading order.  columns: how many of
    them stand side by side at most.  size: of each, in inches."""

    about: str
    panels: tuple[tuple[str, Panel], ...]
    columns: int = 1
    size: tuple[float, float] = (7.0, 4.2)


@dataclass(frozen=True)
class Drawn:
    """A finished picture, or (figure None) the reason why there is none.  columns: panels that stand side by side."""

    kind: str
    figure: Figure | None
    caption: str
    columns: int = 1

    def write(self, suffix: str, dpi: int = 150) -> bytes:
        """The picture as png, svg or pdf; the same report gives the same bytes."""
        assert self.figure is not None
        paper = BytesIO()
        stamps = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with style.styled():
            style.save(self.figure, paper, suffix, dpi=dpi, metadata=stamps[suffix])
        return paper.getvalue()


KINDS: dict[str, Kind] = {
    "overview": Kind(
        "one page: how far apart, where, and what a plan makes of it",
        (
            ("Log-ratio histogram", panels.ratio),
            ("Log-ratio by rollout log-prob", panels.surprise),
            ("Log-ratio by position", panels.position),
            ("Sequence log-ratio by length", panels.length_spread),
            ("Training against rollout log-prob", panels.log_probabilities),
            ("k3 KL", courses.k3_course),
        ),
        3,
        (4.6, 3.5),
    ),
    "metrics": Kind(
        "the curves that trainers log, over steps",
        (
            ("Mean IS weight", courses.mean_weight),
            ("Effective sample size", courses.sample_size),
            ("Rejected share", courses.rejected),
            ("KL divergence", courses.divergence),
            ("Perplexity ratio", courses.perplexity),
            ("χ² divergence", courses.chi2),
        ),
        3,
        (4.4, 3.2),
    ),
    "ratio": Kind("how the log-ratio is distributed", (("Log-ratio histogram", panels.ratio),), size=(7.5, 4.2)),
    "scatter": Kind(
        "one policy against the other",
        (
            ("Training against rollout probability", panels.probabilities),
            ("Training against rollout log-prob", panels.log_probabilities),
        ),
        2,
        (5.2, 4.2),
    ),
    "surprise": Kind(
        "whether the gap is one of unlikely tokens", (("Log-ratio by rollout log-prob", panels.surprise),)
    ),
    "position": Kind("whether the gap grows along the context", (("Log-ratio by position", panels.position),)),
    "length": Kind(
        "what length does to sequence ratios and to rejection",
        (("Sequence log-ratio by length", panels.length_spread), ("Tokens kept by length", panels.length_kept)),
        2,
        (5.2, 3.8),
    ),
    "weights": Kind(
        "how the plan's weights lie, and which sequences carry most",
        (("Applied IS weights", weights.weights), ("Which sequences carry the weight", weights.gradient)),
        2,
        (5.2, 4.0),
    ),
    "staleness": Kind("what lag between versions costs", (("k3 KL by policy lag", courses.staleness),)),
}


PANELS_BY_STEP: dict[Panel, Panel] = {
    panels.ratio: by_step.ratio,
    panels.surprise: by_step.surprise,
    panels.position: by_step.position,
    panels.length_spread: by_step.length,
}
"""What stands in the place of a panel where groups have curves of their own."""
BY_STEP = tuple(kind for kind, layout in KINDS.items() if any(panel in PANELS_BY_STEP for _, panel in layout.panels))
"""Kinds that --by-step changes."""


def panels_of(kind: str, report: Report) -> tuple[tuple[str, Panel], ...]:
    """The titles and panels of a kind, with a curve for each step where the report has them."""
    layout = KINDS[kind].panels
    if not any(group.curves for group in report.groups):
        return layout
    return tuple((title, PANELS_BY_STEP.get(panel, panel)) for title, panel in layout)


def draw(kind: str, report: Report, *, captioned: bool = True) -> Drawn:
    """One picture of a report.  A panel without data is left out; if all are, there is no picture.

    Below it stands what it is of, and its caption unless the document around it shows that.
    """
    layout, shown = KINDS[kind], panels_of(kind, report)
    with style.styled():
        figure, sentences, missing = _laid_out(layout, shown, report)
        if missing:  # the others take its room
            shown = tuple(panel for panel in shown if panel not in missing)
            if not shown:
                return Drawn(kind, None, " ".join(dict.fromkeys(missing.values())))
            figure, sentences, missing = _laid_out(layout, shown, report)
            assert not missing
        style.heads(figure.axes)
        caption = _caption(kind, sentences)
        style.foot(figure, [(caption, False)] * captioned + [(_provenance(report), True)])
    return Drawn(kind, figure, caption, _columns(layout, len(shown)))


def _laid_out(
    layout: Kind, panels: Sequence[tuple[str, Panel]], report: Report
) -> tuple[Figure, list[str], dict[tuple[str, Panel], str]]:
    """Panels drawn onto a figure, with their sentences; and those that have nothing to draw, with the reason."""
    columns = _columns(layout, len(panels))
    n_rows = -(-len(panels) // columns)
    figure = style.blank(layout.size[0] * columns, layout.size[1] * n_rows)
    sentences, missing = list[str](), dict[tuple[str, Panel], str]()
    for (title, panel), ax in zip(panels, _axes(figure, len(panels), n_rows), strict=True):
        ax.set_title(title)
        try:
            sentences.append(panel(ax, report))
        except Missing as reason:
            missing[title, panel] = str(reason)
    return figure, sentences, missing


def _columns(layout: Kind, n_panels: int) -> int:
    """How many panels stand side by side, in as few rows as hold them."""
    return -(-n_panels // -(-n_panels // layout.columns))


def _axes(figure: Figure, n: int, n_rows: int) -> Iterator[Axes]:
    """Axes in rows that are full, of which the first may hold one more."""
    rows = figure.add_gridspec(n_rows, 1)
    for i in range(n_rows):
        in_row = n // n_rows + (i < n % n_rows)
        places = rows[i].subgridspec(1, in_row)
        for j in range(in_row):
            yield figure.add_subplot(places[j])


def _caption(kind: str, captions: list[str]) -> str:
    if kind == "metrics":
        text = "; ".join(captions)
        return f"{text[0].upper()}{text[1:]}."
    return " ".join(captions)


def _provenance(report: Report) -> str:
    """What a picture is of: the file, the plan, how much, the file's last change, and who drew it."""
    path = report.inputs[0].path
    name = "standard input" if path == "-" else style.label(path.rsplit("/", 1)[-1])
    others = f" {more(len(report.inputs) - 1, 'file')}" if len(report.inputs) > 1 else ""
    tokens, sequences = (plural(report.whole.counts[unit], unit[:-1]) for unit in ("tokens", "sequences"))
    parts = (f"{name}{others}", f"plan {style.label(report.plan.name)}", f"{tokens}, {sequences}")
    return " · ".join(filter(None, (*parts, last_change(report.inputs), f"rlcorr {__version__}")))
