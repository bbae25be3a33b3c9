"""ANOMALIES: the table of what may be wrong with a whole file, and `find_anomalies`, which tests files for it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.quality.anomalies import alignment, scale, steps, unscored
from rlcorr_cli.quality.anomalies.sample import Sample
from rlcorr_cli.quality.cause import Cause, Kind

Evidence = Callable[[Sample, Sample | None], str | None]
"""A function of a file's sample and the sample of the file before it: a sentence with the numbers, or None.

Only the order of files needs the file before.
"""


def _of_one_file(evidence: Callable[[Sample], str | None]) -> Evidence:
    """Evidence from one file, whatever file came before it."""
    return lambda sample, _before: evidence(sample)


@dataclass(frozen=True, kw_only=True)
class Anomaly(Cause):
    """What may be wrong with a whole file.

    evidence: what tests for it.  voids: whether no number of such a file means what its name says.
    """

    kind: Kind = "file"
    evidence: Evidence
    voids: bool = True


@dataclass(frozen=True, kw_only=True)
class AnomalyFinding:
    """An anomaly of a dump: the first file that shows it, the evidence there, and how many files show it."""

    name: str
    path: str
    evidence: str
    fix: str
    n_files: int

    @property
    def voids(self) -> bool:
        """Whether no number of such a file means what its name says."""
        return any(anomaly.name == self.name and anomaly.voids for anomaly in ANOMALIES)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; its key for the fix is `cure`."""
        return {
            "name": self.name,
            "path": self.path,
            "evidence": self.evidence,
            "cure": self.fix,
            "n_files": self.n_files,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "AnomalyFinding":
        """The finding that `to_dict` wrote."""
        path, evidence = data["path"], data["evidence"]
        return cls(name=data["name"], path=path, evidence=evidence, fix=data["cure"], n_files=data["n_files"])


ANOMALIES: tuple[Anomaly, ...] = (
    Anomaly(
        name="bypass_copy",
        meaning="The training column is a copy of the rollout column, so every correction does nothing.",
        looks="Both columns agree to the last digit on every token of the first rows, 16 of them other than 0 at "
        "least.",
        certainty="Equal they are for certain; whether anything is wrong is for you to know, as bit-equal engines give "
        "equal columns.",
        alike="Engines and trainers that share their kernels and reach the same bits.",
        advice="Write the training policy's own log-probs before the trainer's bypass overwrites them; bit-equal "
        "engines may ignore this.",
        source="verl's bypass mode sets old_log_probs = rollout_log_probs: equal columns mean no training policy, not "
        "a perfect match",
        evidence=_of_one_file(alignment.bypass_copy),
    ),
    Anomaly(
        name="shifted_columns",
        meaning="One column lies a token earlier or later than the other.",
        looks="The two columns go together one token off (correlation 0.5 at least), and not in place.",
        certainty="The correlation off place must beat that in place by 0.3 and by five standard errors.",
        alike="mispaired_rows, where single rows do not go together at any shift.",
        advice="Shift one column by a token and write the dump again: both must hold the log-prob of token t at place "
        "t.",
        source="AReaL's prox_logp stands at the token before (labels rolled by -1); OpenRLHF, ROLL and tinker write n "
        "- 1 values; a real pair correlates 1.00, and 0.06 when shifted by one",
        evidence=_of_one_file(alignment.shifted_columns),
    ),
    Anomaly(
        name="unmasked_padding",
        meaning="Rows were padded to one length, and the padding counts as tokens.",
        looks="All rows are of one length, and a tenth of them or more end or start with a long run of one value in "
        "both columns.",
        certainty="Runs as common inside rows are not padding: a policy that repeats itself is sure of it in both "
        "columns.",
        alike="Rows that were cut at one length and end in a long repetition.",
        advice="Mask the padding (response_mask 0), or cut each row to its own length.",
        source="verl, NeMo-RL, TRL, SkyRL and OpenRLHF hold padded batches in memory; SkyRL pads on the left since "
        "2026-03",
        evidence=_of_one_file(unscored.unmasked_padding),
    ),
    Anomaly(
        name="unmasked_prompt",
        meaning="Rows begin with the prompt, which the rollout engine never scored, and it counts as tokens.",
        looks="Half of the rows or more start with a run of exact zeros: in the rollout column, on which the other "
        "column is surprised, or in both columns.",
        certainty="A single 0 is no sign: probability 1 rounds to it. A run counts where the other column contradicts "
        "it, or where runs of zeros in both columns are rare inside rows.",
        alike="unscored_zeros, where runs stand inside rows.",
        advice="Mask the prompt (response_mask 0), or name the mask column with --map response_mask=COLUMN.",
        source="NeMo-RL, AReaL, prime-rl and tinker write whole sequences with 0.0 on the prompt in the rollout column "
        "only",
        evidence=_of_one_file(unscored.unmasked_prompt),
    ),
    Anomaly(
        name="unscored_zeros",
        meaning="One column holds 0.0 on stretches it never scored (tool output, padding, or greedy tokens), and they "
        "count.",
        looks="Runs of exact zeros in one column, on which the other is surprised.",
        certainty="As of unmasked_prompt: only runs that the other column contradicts count.",
        alike="top_p, which gives exact zeros only where the other policy gives a token more than p.",
        advice="Mask those tokens (response_mask 0), or score them; 0.0 means probability 1.",
        source="NeMo-RL, miles, OpenRLHF, TRL: 0.0 stands for 'the engine did not score this token'",
        evidence=_of_one_file(unscored.unscored_zeros),
    ),
    Anomaly(
        name="probabilities",
        meaning="A column holds probabilities, not their logarithms.",
        looks="A column lies between 0 and 1, and most of it above 0.",
        certainty="Certain from 8 values above 0 on: no log-prob is.",
        alike="Nothing else: single log-probs just above 0 are rounding, and no anomaly.",
        advice="Take the natural logarithm before writing the dump.",
        source="log-probs are at most 0, probabilities at least 0",
        evidence=_of_one_file(scale.probabilities),
    ),
    Anomaly(
        name="other_base",
        meaning="One column is in logarithms of base 10 or 2.",
        looks="One column is ln 10 or ln 2 times the other (or one over it), and both lie on that line.",
        certainty="64 tokens, and two slopes that agree within 2 % of the factor. Both columns in one base cannot be "
        "seen.",
        alike="temperature bends the line of log-probs, and is straight in log-odds.",
        advice="Multiply it by the logarithm of its base: ln 10 = 2.302585, ln 2 = 0.693147.",
        source="log_b p = ln p / ln b; noise and updates leave the slope of one column on the other within 1 % of 1",
        evidence=_of_one_file(scale.other_base),
    ),
    Anomaly(
        name="swapped_columns",
        meaning="The tokens look drawn from the training column: the two have each other's names, or the rollout "
        "column was not what was sampled from.",
        looks="The mean log-ratio is above 0, and the mean of p_rollout / p_train is 1, as if training had drawn the "
        "tokens.",
        certainty="It takes 10,000 tokens at the noise of int8, 40,000 at that of bf16; below it says nothing, and "
        "columns swapped where one is cut by top-p are not seen.",
        alike="temperature with raw rollout log-probs, where the engine sampled from what training's column holds.",
        advice="Check which column is whose (--map rollout_log_probs=..., --map old_log_probs=...), and that the "
        "engine returns log-probs after temperature and top-p (vLLM: logprobs_mode=processed_logprobs).",
        source="the mean of p_train / p_rollout over tokens drawn from the rollout policy is 1, and the mean log-ratio "
        "-KL",
        evidence=_of_one_file(alignment.swapped_columns),
    ),
    Anomaly(
        name="steps_out_of_order",
        meaning="A file's steps lie before those of the file read before it.",
        looks="The steps of a file's first rows lie before those of the file read before it.",
        certainty="Certain where files have a step column in order; ranges that overlap (ranks of one step) are no "
        "evidence.",
        alike="Files of shuffled rows, which have no order and raise nothing.",
        advice="Name the files in training order (a shell puts step10 before step2: name the folder, or quote the "
        "glob), and leave out what a resumed run wrote again.",
        source="names sort as text; a resumed run repeats steps",
        evidence=steps.steps_out_of_order,
        voids=False,
    ),
)


def find_anomalies(samples: Iterable[Sample]) -> tuple[AnomalyFinding, ...]:
    """Test the sample of every file for every anomaly; one finding for each anomaly, in the order of ANOMALIES.

    Only a sample and the one before it are needed at a time, so an iterator keeps memory flat.
    """
    first: dict[str, tuple[str, str]] = {}
    n_files: Counter[str] = Counter()
    before: Sample | None = None
    for sample in samples:
        for anomaly in ANOMALIES:
            evidence = anomaly.evidence(sample, before)
            if evidence is not None:
                first.setdefault(anomaly.name, (sample.path, evidence))
                n_files[anomaly.name] += 1
        before = sample
    return tuple(
        AnomalyFinding(name=row.name, path=path, evidence=evidence, fix=row.advice, n_files=n_files[row.name])
        for row in ANOMALIES
        if row.name in first
        for path, evidence in (first[row.name],)
    )
