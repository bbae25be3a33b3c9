"""The kinds of picture: which panels each holds, and how they are laid out, captioned and written."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from io import BytesIO

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.results.report import Report
from rlcorr_cli.results.trends import Missing
from rlcorr_cli.show.document import Panel, Picture
from rlcorr_cli.show.figures import courses, panels, style, ticks, tidy
from rlcorr_cli.show.inputs import picture_source

ReportPanel = Callable[[Axes, Report], str]


@frozen
class Kind:
    """A picture.  about: the question it answers.  panels: (title, panel), in reading order.  columns: how many of
    them stand side by side at most.  size: of each, in inches."""

    about: str
    panels: tuple[tuple[str, ReportPanel], ...]
    columns: int = 1
    size: tuple[float, float] = (7.0, 4.2)


DPI = 150
NARROWEST, SMALL, LEAST_HEIGHT = 2.6, 4.0, 0.75
"""Inches: no panel is narrower; of one that is less wide than SMALL the text is smaller.  The share of a kind's own
height that its panels keep, however narrow, so that their labels have room."""


@frozen
class Sheet:
    """What a picture is drawn for.  width: in inches, of all panels of a row, which are fewer where that is small; None
    for each kind's own.  captioned: whether caption and source stand below it."""

    width: float | None = None
    captioned: bool = True


SHEET = Sheet()


@frozen
class Drawn:
    """A finished picture, or (figure None) the reason why there is none.  columns: panels that stand side by side."""

    kind: str
    figure: Figure | None
    caption: str
    columns: int = 1

    def write(self, suffix: str, dpi: int = DPI) -> bytes:
        """The picture as png, svg or pdf, or what it shows as csv; the same report gives the same bytes."""
        assert self.figure is not None
        if suffix == "csv":
            return tidy.table(self.figure)
        paper = BytesIO()
        stamps = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
        with style.styled():
            style.save(self.figure, paper, suffix, dpi=dpi, metadata=stamps[suffix])
        return paper.getvalue()


KINDS: dict[str, Kind] = {
    "overview": Kind(
        "one page: how far apart, where, and what a plan makes of it",
        (
            ("k3 KL", courses.k3_course),
            ("Log-ratio histogram", panels.ratio),
            ("Log-ratio by rollout log-prob", panels.surprise),
            ("Log-ratio by position", panels.position),
            ("Sequence log-ratio by length", panels.length_spread),
            ("Training against rollout log-prob", panels.log_probabilities),
        ),
        3,
        (4.6, 3.5),
    ),
    "course": Kind(
        "since which step the policies part, and what the reward does then",
        (("k3 KL", courses.k3_course), ("Reward", courses.reward)),
        2,
        (5.2, 3.8),
    ),
    "metrics": Kind(
        "the curves that trainers log, over steps or other groups",
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
    "surprise": Kind(
        "whether the gap is one of unlikely tokens", (("Log-ratio by rollout log-prob", panels.surprise),)
    ),
    "scatter": Kind(
        "one policy against the other",
        (
            ("Training against rollout probability", panels.probabilities),
            ("Training against rollout log-prob", panels.log_probabilities),
        ),
        2,
        (5.2, 4.2),
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
        (("Applied IS weights", panels.weights), ("Which sequences carry the weight", panels.gradient)),
        2,
        (5.2, 4.0),
    ),
    "staleness": Kind("what lag between versions costs", (("k3 KL by policy lag", courses.staleness),)),
}


def pictures(report: Report) -> list[Picture]:
    """Every kind of picture of a report but the overview, which repeats the others, and lags that steps explain."""
    tells_lags = report.lags is not None and report.lags.base is not None
    return [picture(kind, report) for kind in KINDS if kind != "overview" and (kind != "staleness" or tells_lags)]


def picture(kind: str, report: Report) -> Picture:
    """A kind of picture."""
    layout = KINDS[kind]
    shown = _of_plan(layout.panels, report.plan) if kind == "overview" else layout.panels
    drawn = [Panel(title, lambda ax, panel=panel: panel(ax, report)) for title, panel in shown]
    return Picture(panels=drawn, name=kind, about=layout.about, columns=layout.columns, size=layout.size)


def _of_plan(every: Sequence[tuple[str, ReportPanel]], plan: Plan) -> Iterator[tuple[str, ReportPanel]]:
    """The panels of the overview: what a plan weights and what it keeps stand in the place of two on the policies."""
    for title, panel in every:
        if panel is panels.log_probabilities and plan.weighting is not None:
            yield "Applied IS weights", panels.weights
        elif panel is panels.position and plan.rules:
            yield "Tokens kept by length", panels.length_kept
        else:
            yield title, panel


def draw(kind: str, report: Report, sheet: Sheet = SHEET) -> Drawn:
    """One picture of a report."""
    return drawn_picture(picture(kind, report), source=picture_source(report), sheet=sheet)


def drawn_picture(picture: Picture, *, source: str, captioned: bool = True, sheet: Sheet = SHEET) -> Drawn:
    """A picture.  A panel without data is left out; if all are, there is no picture.

    Below it stands what it is of (the source), and its caption unless the document around it shows that.
    """
    is_small = False
    if sheet.width is not None:
        columns = max(1, min(picture.columns, int(sheet.width / NARROWEST)))
        wide, high = picture.size
        of_panel = sheet.width / columns
        is_small = of_panel < SMALL
        picture = replace(picture, columns=columns, size=(of_panel, high * max(of_panel / wide, LEAST_HEIGHT)))
    columns, shown, missing, sentences, figure = 1, list(picture.panels), dict[str, str](), list[str](), None
    with style.styled(small=is_small):
        while shown:
            n_rows = -(-len(shown) // picture.columns)
            columns = -(-len(shown) // n_rows)  # as few as these rows hold
            figure = style.blank(picture.size[0] * columns, picture.size[1] * n_rows)
            sentences, lacking = list[str](), list[Panel]()
            for panel, ax in zip(shown, _axes(figure, len(shown), n_rows), strict=True):
                ax.set_title(panel.title)
                try:
                    sentences.append(panel.draw(ax))
                    ticks.without_power(ax.xaxis)
                    ticks.without_power(ax.yaxis)
                    if is_small:
                        style.fitted(ax, picture.size[0])
                except Missing as reason:
                    lacking.append(panel)
                    missing[panel.title] = str(reason)
            if not lacking:
                break
            shown = [panel for panel in shown if panel not in lacking]  # the others take its room
        if not shown or figure is None:
            return Drawn(picture.name, None, " ".join(dict.fromkeys(missing.values())))
        style.heads(figure.axes)
        caption = " ".join(dict.fromkeys(filter(None, sentences)))
        if sheet.captioned:
            style.foot(figure, [(caption, False)] * captioned + [(source, True)])
    return Drawn(picture.name, figure, caption, columns)


def _axes(figure: Figure, n: int, n_rows: int) -> Iterator[Axes]:
    """Axes in rows that are full, of which the first may hold one more."""
    rows = figure.add_gridspec(n_rows, 1)
    for i in range(n_rows):
        in_row = n // n_rows + (i < n % n_rows)
        places = rows[i].subgridspec(1, in_row)
        for j in range(in_row):
            yield figure.add_subplot(places[j])
