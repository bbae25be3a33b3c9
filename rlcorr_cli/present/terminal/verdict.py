"""What a report says in words: how close the policies are, what that leaves usable, what looks wrong."""

import os

from rlcorr_cli.quality.anomalies import Suspected
from rlcorr_cli.report.report import Group, Report


def verdict(report: Report) -> str:
    """One or two sentences in plain words."""
    values = report.whole.values
    if values["logprob_abs_diff_max"] == 0:
        return "Equal on every token: the two columns hold the same numbers, so there is nothing to correct."
    sentences = [_closeness(values["k3_kl"], values["token_ess"], values["seq_ess"])]
    turn = _turn(report.groups)
    if turn:
        sentences.append(turn)
    kept = _kept(report)
    if kept:
        sentences.append(kept)
    return " ".join(sentences)


def _closeness(k3: float | None, token_ess: float | None, seq_ess: float | None) -> str:
    """How far apart the policies are, and which weights still leave a usable sample."""
    if k3 is None or token_ess is None or k3 > 0.1 or token_ess < 0.5:
        return "Far apart: this is more than weights can mend; see what is wrong first."
    sequence = seq_ess is not None and seq_ess >= 0.3
    if k3 < 1e-6:
        return "The same policy, to rounding."
    close = "Close" if k3 < 0.01 else "Apart"
    if sequence:
        return f"{close}: token-level and sequence-level weights are both usable."
    return f"{close}: token-level weights stay usable, sequence-level ones do not."


def _turn(groups: tuple[Group, ...]) -> str:
    """Where along one ordered numeric column the drift sets in: from there on k3_kl stays above twice the first's."""
    if len(groups) < 3 or any(len(group.key) != 1 for group in groups):
        return ""
    name = next(iter(groups[0].key))
    places = [group.key[name] for group in groups]
    course = [group.values["k3_kl"] for group in groups]
    known = [k3 for k3 in course if k3 is not None]
    if len(known) < len(course) or not known[0] or not all(isinstance(place, int | float) for place in places):
        return ""
    first = known[0]
    for i in range(1, len(known)):
        lowest = min(known[i:])
        if lowest > 2 * first and lowest > 1e-6:
            start, turn = f"{name} {places[0]:g}", f"{name} {places[i]:g}"
            return f"Drifting from {turn}: k3_kl is {lowest / first:.1f} times or more that of {start}."
    return ""


def _kept(report: Report) -> str:
    kept = report.whole.values.get("kept_tokens")
    tokens = report.whole.counts["tokens"]
    if kept is None:
        return ""
    if kept == 0:
        return "The rejections keep nothing."
    return f"The rejections keep {100 * kept / tokens:.1f} % of the tokens." if kept < 0.5 * tokens else ""


def suspected(one: Suspected) -> str:
    """The file, how many more there are of it, and the evidence."""
    more = f" and {one.n_files - 1:,} more files" if one.n_files > 1 else ""
    return f"{os.path.basename(one.path)}{more}: {one.evidence.rstrip('.')}."
