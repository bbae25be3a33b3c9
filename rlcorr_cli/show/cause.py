"""The likely cause of the gap in one sentence, for the first lines of a report, a page and an inspection."""

from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.causes.table import NOISE
from rlcorr_cli.show.stdout import clean

EVIDENCE = "`rlcorr diagnose` shows the evidence."
FURTHER = "`rlcorr diagnose` looks at columns and token ids, too, and says what to do."
UNSETTLED = frozenset({"drift", "heavy_tail", "other_weights", "position_grows", "some_rows"})
"""What one bad level of a column, or a repetition penalty, looks like where neither columns nor token ids are read."""


def told_cause(cause: CauseFinding | None) -> CauseFinding | None:
    """The cause, if something is to be done about it: noise is what any two engines differ by."""
    return None if cause is None or cause.cause == NOISE else cause


def cause_sentence(cause: CauseFinding) -> str:
    """'rollout_log_probs was cut at top-p 0.8 (0.787 .. 0.808); old_log_probs was not. At least 72 % of the gap.'"""
    from rlcorr_cli.show.diagnosed import share_words

    return f"{clean(cause.headline)}. {share_words(cause)}."


def next_step(cause: CauseFinding) -> str:
    """What to do, and where the evidence is."""
    return FURTHER if cause.cause in UNSETTLED else f"{clean(cause.advice)} {EVIDENCE}"
