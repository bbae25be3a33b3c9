"""ANOMALIES: the table of what may be wrong with a whole file, and `find_anomalies`, which tests files for it."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rlcorr_cli.quality.anomalies import alignment, scale, steps, unscored
from rlcorr_cli.quality.anomalies.sample import Sample

Evidence = Callable[[Sample, Sample | None], str | None]
"""A function of a file's sample and the sample of the file before it: a sentence with the numbers, or None.

Only the order of files needs the file before.
"""


def _of_one_file(evidence: Callable[[Sample], str | None]) -> Evidence:
    """Evidence from one file, whatever file came before it."""
    return lambda sample, _before: evidence(sample)


@dataclass(frozen=True)
class Anomaly:
    """What may be wrong with a whole file.

    fix: what to do about it.  source: which framework is known for it, or the fact that the evidence rests on.
    voids: whether no number of such a file means what its name says.
    """

    name: str
    meaning: str
    fix: str
    source: str
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
        "bypass_copy",
        "The training column is a copy of the rollout column, so every correction does nothing.",
        "Write the training policy's own log-probs before the trainer's bypass overwrites them; bit-equal engines may "
        "ignore this.",
        "verl's bypass mode sets old_log_probs = rollout_log_probs: equal columns mean no training policy, not a "
        "perfect match",
        _of_one_file(alignment.bypass_copy),
    ),
    Anomaly(
        "shifted_columns",
        "One column lies a token earlier or later than the other.",
        "Shift one column by a token and write the dump again: both must hold the log-prob of token t at place t.",
        "AReaL's prox_logp stands at the token before (labels rolled by -1); OpenRLHF, ROLL and tinker write n - 1 "
        "values; a real pair correlates 1.00, and 0.06 when shifted by one",
        _of_one_file(alignment.shifted_columns),
    ),
    Anomaly(
        "unmasked_padding",
        "Rows were padded to one length, and the padding counts as tokens.",
        "Mask the padding (response_mask 0), or cut each row to its own length.",
        "verl, NeMo-RL, TRL, SkyRL and OpenRLHF hold padded batches in memory; SkyRL pads on the left since 2026-03",
        _of_one_file(unscored.unmasked_padding),
    ),
    Anomaly(
        "unmasked_prompt",
        "Rows begin with the prompt, which the rollout engine never scored, and it counts as tokens.",
        "Mask the prompt (response_mask 0), or name the mask column with --map response_mask=COLUMN.",
        "NeMo-RL, AReaL, prime-rl and tinker write whole sequences with 0.0 on the prompt in the rollout column only",
        _of_one_file(unscored.unmasked_prompt),
    ),
    Anomaly(
        "unscored_zeros",
        "One column holds 0.0 on stretches it never scored (tool output, padding, or greedy tokens), and they count.",
        "Mask those tokens (response_mask 0), or score them; 0.0 means probability 1.",
        "NeMo-RL, miles, OpenRLHF, TRL: 0.0 stands for 'the engine did not score this token'",
        _of_one_file(unscored.unscored_zeros),
    ),
    Anomaly(
        "probabilities",
        "A column holds probabilities, not their logarithms.",
        "Take the natural logarithm before writing the dump.",
        "log-probs are at most 0, probabilities at least 0",
        _of_one_file(scale.probabilities),
    ),
    Anomaly(
        "other_base",
        "One column is in logarithms of base 10 or 2.",
        "Multiply it by the logarithm of its base: ln 10 = 2.302585, ln 2 = 0.693147.",
        "log_b p = ln p / ln b; noise and updates leave the slope of one column on the other within 1 % of 1",
        _of_one_file(scale.other_base),
    ),
    Anomaly(
        "swapped_columns",
        "The tokens look drawn from the training column: the two have each other's names, or the rollout column was "
        "not what was sampled from.",
        "Check which column is whose (--map rollout_log_probs=..., --map old_log_probs=...), and that the engine "
        "returns log-probs after temperature and top-p (vLLM: logprobs_mode=processed_logprobs).",
        "the mean of p_train / p_rollout over tokens drawn from the rollout policy is 1, and the mean log-ratio -KL",
        _of_one_file(alignment.swapped_columns),
    ),
    Anomaly(
        "steps_out_of_order",
        "A file's steps lie before those of the file read before it.",
        "Name the files in training order (step2 sorts after step10 as text: pad the numbers), and leave out what a "
        "resumed run wrote again.",
        "names sort as text; a resumed run repeats steps",
        steps.steps_out_of_order,
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
        AnomalyFinding(name=row.name, path=path, evidence=evidence, fix=row.fix, n_files=n_files[row.name])
        for row in ANOMALIES
        if row.name in first
        for path, evidence in (first[row.name],)
    )
