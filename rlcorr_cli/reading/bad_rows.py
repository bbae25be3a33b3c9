"""PROBLEMS: what can be wrong with a row of a dump, and how many rows of each class were read.

A row counts under the first class that it belongs to.  An empty sequence is no bad row; it is counted apart.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Annotated, Literal

from rlcorr_cli.errors import DataError, plural
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import Place
from rlcorr_cli.records.fields import Form
from rlcorr_cli.records.record import Record

ABOVE_ZERO = 1e-6
"""The largest log-prob that is read as 0: kernels round log 1 upwards now and then."""

CLAMPED = 0.25
"""The largest log-prob that `--above-zero clamp` reads as 0: a log-softmax in bf16 ends a step or two above it."""

SENTINEL = -9000.0
"""A log-prob this low is a mark for "none": no softmax over a vocabulary, in whatever precision, comes near it."""

BadRowAction = Literal["error", "skip", "quarantine"]
NonfiniteAction = Literal["error", "mask", "keep"]
AboveZeroAction = Literal["error", "clamp"]

DEFAULT_MAX_FRACTION = 0.5
"""Who skips bad rows means to go on without them; that most of a dump is bad is another fault than bad rows."""
GO_ON = "⟦on_bad_row skip⟧ leaves such rows out"


@frozen
class Problem:
    """A class of bad rows: its meaning, what to do about such a row, and which frameworks or accidents write one."""

    name: str
    meaning: str
    fix: str
    seen_in: str


PROBLEMS: tuple[Problem, ...] = (
    Problem(
        "unreadable_line",
        "A line of JSON lines that is not a JSON object, has a key twice, or holds a value of another kind than its "
        "column.",
        "Repair or delete the line; one that is not JSON may have been cut short.",
        "a writer that was stopped, or two that wrote at once",
    ),
    Problem(
        "null_list",
        "A row whose log-probs, mask or advantages are null instead of a list.",
        "Write [] for a row without tokens.",
        "samples that failed or were aborted",
    ),
    Problem(
        "unequal_lengths",
        "A row with a list that is not as long as its rollout log-probs.",
        "They are compared token by token: repair the row, or use ⟦map⟧ to name another column.",
        "a tokenizer that splits text again; a last token scored by one side only",
    ),
    Problem(
        "mask_values",
        "A mask with a value other than 0 and 1.",
        "1 (or true) is a token of the response; use ⟦map response_mask=COLUMN⟧ to name another column.",
        "open-instruct's packed masks, which hold the sample's number",
    ),
    Problem(
        "not_finite",
        "A null, NaN or infinite log-prob (or advantage, if the plan uses it) on a valid token.",
        "Set the mask to 0 there if it is not a response token; ⟦nonfinite mask⟧ does so. ⟦nonfinite keep⟧ leaves a "
        "token whose rollout log-prob alone is missing in the loss, at ratio 1, as TRL does.",
        "a policy with top-k or top-p gives -inf to a token outside; prime-rl writes null for what is not finite, TRL "
        "has NaN for a token that vLLM could not score",
    ),
    Problem(
        "above_zero",
        f"A log-prob above {ABOVE_ZERO:g} on a valid token.",
        f"⟦above_zero clamp⟧ reads one of {CLAMPED:g} at most as 0. For others, use ⟦map⟧ to name the log-probs.",
        "open-instruct writes +1 for a token without a log-prob",
    ),
    Problem(
        "sentinel",
        f"A log-prob of {SENTINEL:g} or lower on a valid token: a mark for a missing one.",
        "Set the mask to 0 there if it is not a response token.",
        "OpenAI's interface gives -9999 to tokens outside the top ones",
    ),
    Problem(
        "duplicate_id",
        "A row with the same sample_id as an earlier row (in the same step, if there are steps).",
        "Two files may hold the same rows; if the column numbers something else, name the rows' own with "
        "⟦map sample_id=COLUMN⟧.",
        "a run that was resumed, a shard that was written twice",
    ),
)

FIXES: Mapping[str, str] = {problem.name: problem.fix for problem in PROBLEMS}
"""Class of bad rows -> what to do about it."""


@frozen(kw_only=True)
class BadRowPolicy:
    """What to do about bad rows.

    action: stop at the first (error), leave them out (skip), or leave them out and write them to `quarantine`.
    max_fraction: a larger share of bad rows stops the run; None is 0 with error, else DEFAULT_MAX_FRACTION.
    nonfinite: mask clears single tokens that are not finite instead, as if the mask were 0 there; keep lets a token
    stay whose rollout log-prob is null or NaN, and no other value that is looked at: there the rollout policy is taken
    to agree with whichever policy it is compared with, so that the ratio is 1.  above_zero: clamp reads log-probs of
    CLAMPED at most as 0.
    """

    action: BadRowAction = "error"
    quarantine: Path | None = None
    max_fraction: float | None = None
    nonfinite: NonfiniteAction = "error"
    above_zero: AboveZeroAction = "error"

    @property
    def stops(self) -> bool:
        """Whether the first bad row ends the run."""
        return self.action == "error"

    @property
    def keeps(self) -> bool:
        """Whether bad rows are kept whole, with their reasons, to be written to the quarantine."""
        return self.action == "quarantine" or self.quarantine is not None

    @property
    def limit(self) -> float:
        """The largest share of bad rows with which a run goes on."""
        return DEFAULT_MAX_FRACTION if self.max_fraction is None else self.max_fraction


@frozen
class FirstBadRow:
    """The first row of a class, and what is wrong with it.

    message: a clause without the place, 'old_log_probs is null'; of an unreadable line, a predicate, 'is not JSON'.
    """

    place: Place
    message: str


def worded(problem: str, place: str, message: str) -> str:
    """'dump.jsonl, line 3 is not JSON', 'dump.parquet, row 3: old_log_probs is null'."""
    return f"{place}{' ' if problem == 'unreadable_line' else ': '}{message}"


def first_bad_row(problem: str, place: str, message: str, fix: str) -> DataError:
    """The error of a row that ends a run.  fix: what to do, if that is not the same for all of the class."""
    return DataError(f"{worded(problem, place, message)}.", f"{fix or FIXES[problem]} {GO_ON}.")


@frozen
class LeftOut(Record):
    """Bad rows of one class: how many there are, and where the first is."""

    rows: int
    first: str


Problems = Annotated[
    Mapping[str, LeftOut],
    Form(name="problems", about="Bad rows that were left out, by class; `rlcorr explain NAME` defines each."),
]


@frozen(kw_only=True)
class BadRowCounts:
    """How many rows were bad, by class.  Counts add; the left operand's rows come first.

    rows: class -> bad rows.  first: class -> its first row.  By BadRowPolicy.nonfinite, cleared: tokens masked because
    they were not finite; unscored: tokens kept without a rollout log-prob.  clamped: values above 0 that were read as
    it.  Plain numbers and places, so that counts can be sent between processes.
    """

    rows: Mapping[str, int] = field(default_factory=dict[str, int])
    first: Mapping[str, FirstBadRow] = field(default_factory=dict[str, FirstBadRow])
    cleared: int = 0
    unscored: int = 0
    clamped: int = 0

    @property
    def n_rows(self) -> int:
        """The number of bad rows of all classes."""
        return sum(self.rows.values())

    def __add__(self, other: "BadRowCounts") -> "BadRowCounts":
        rows = {name: self.rows.get(name, 0) + other.rows.get(name, 0) for name in {**self.rows, **other.rows}}
        return BadRowCounts(
            rows=rows,
            first={**other.first, **self.first},
            cleared=self.cleared + other.cleared,
            unscored=self.unscored + other.unscored,
            clamped=self.clamped + other.clamped,
        )

    @property
    def changed_notes(self) -> list[str]:
        """What was read otherwise than it stands, counted."""
        keep = "without a rollout log-prob kept at ratio 1; every metric of differences counts a difference of 0 there."
        changed = (
            (self.cleared, "masked for values that are not finite."),
            (self.unscored, keep),
            (self.clamped, f"with a log-prob above 0 ({CLAMPED:g} at most) read as 0, as bf16 rounds."),
        )
        return [f"{plural(n, 'token')} {what}" for n, what in changed if n]

    def by_class(self) -> "Problems":
        """By class, in the order of PROBLEMS; call it on resolved places."""
        names = [problem.name for problem in PROBLEMS if problem.name in self.rows]
        firsts = {name: worded(name, self.first[name].place.text, self.first[name].message) for name in names}
        return {name: LeftOut(rows=self.rows[name], first=firsts[name]) for name in names}
