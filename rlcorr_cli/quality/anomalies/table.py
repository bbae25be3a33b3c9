"""The rows of SUSPICIONS, and `suspect`, which holds a dump's files against them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlcorr_cli.quality.anomalies import alignment as pairing
from rlcorr_cli.quality.anomalies import scale, steps
from rlcorr_cli.quality.anomalies import unscored as fills
from rlcorr_cli.quality.anomalies.sample import Sample

Evidence = Callable[[Sample, Sample | None], str | None]
"""A sentence with the numbers, or None.  Of one file, and the file before it: only the order of files looks at that."""


def _alone(evidence: Callable[[Sample], str | None]) -> Evidence:
    """Evidence that a file gives by itself."""
    return lambda sample, _before: evidence(sample)


@dataclass(frozen=True)
class Suspicion:
    """What may be wrong with a whole file.

    means: what it is.  cure: what to do.  source: who is known for it, or the fact it rests on.
    """

    name: str
    means: str
    cure: str
    source: str
    evidence: Evidence


@dataclass(frozen=True)
class Suspected:
    """A suspicion found: the first file that shows it with its evidence, and how many files do."""

    name: str
    path: str
    evidence: str
    cure: str
    n_files: int


SUSPICIONS: tuple[Suspicion, ...] = (
    Suspicion(
        "bypass_copy",
        "The training column is a copy of the rollout column, so every correction does nothing.",
        "Write the training policy's own log-probs before the trainer's bypass overwrites them; bit-equal engines may "
        "ignore this.",
        "verl's bypass mode sets old_log_probs = rollout_log_probs: equal columns mean no training policy, not a "
        "perfect match",
        _alone(pairing.bypass_copy),
    ),
    Suspicion(
        "shifted_columns",
        "One column lies a token earlier or later than the other.",
        "Shift one column by a token and write the dump again: both must hold the log-prob of token t at place t.",
        "AReaL's prox_logp stands at the token before (labels rolled by -1); OpenRLHF, ROLL and tinker write n - 1 "
        "values; a real pair correlates 1.00, and 0.06 when shifted by one",
        _alone(pairing.shifted_columns),
    ),
    Suspicion(
        "unmasked_padding",
        "Rows were padded to one length, and the padding counts as tokens.",
        "Mask the padding (response_mask 0), or cut each row to its own length.",
        "verl, NeMo-RL, TRL, SkyRL and OpenRLHF hold padded batches in memory; SkyRL pads on the left since 2026-03",
        _alone(fills.unmasked_padding),
    ),
    Suspicion(
        "unmasked_prompt",
        "Rows begin with the prompt, which the rollout engine never scored, and it counts as tokens.",
        "Mask the prompt (response_mask 0), or name the mask column with --map response_mask=COLUMN.",
        "NeMo-RL, AReaL, prime-rl and tinker write whole sequences with 0.0 on the prompt in the rollout column only",
        _alone(fills.unmasked_prompt),
    ),
    Suspicion(
        "unscored_zeros",
        "One column holds 0.0 on stretches it never scored (tool output, padding, or greedy tokens), and they count.",
        "Mask those tokens (response_mask 0), or score them; 0.0 means probability 1.",
        "NeMo-RL, miles, OpenRLHF, TRL: 0.0 stands for 'the engine did not score this token'",
        _alone(fills.unscored_zeros),
    ),
    Suspicion(
        "probabilities",
        "A column holds probabilities, not their logarithms.",
        "Take the natural logarithm before writing the dump.",
        "log-probs are at most 0, probabilities at least 0",
        _alone(scale.probabilities),
    ),
    Suspicion(
        "other_base",
        "One column is in logarithms of base 10 or 2.",
        "Multiply it by the logarithm of its base: ln 10 = 2.302585, ln 2 = 0.693147.",
        "log_b p = ln p / ln b; noise and updates leave the slope of one column on the other within 1 % of 1",
        _alone(scale.other_base),
    ),
    Suspicion(
        "swapped_columns",
        "The tokens look drawn from the training column: the two have each other's names, or the rollout column was "
        "not what was sampled from.",
        "Check which column is whose (--map rollout_log_probs=..., --map old_log_probs=...), and that the engine "
        "returns log-probs after temperature and top-p (vLLM: logprobs_mode=processed_logprobs).",
        "the mean of p_train / p_rollout over tokens drawn from the rollout policy is 1, and the mean log-ratio -KL",
        _alone(pairing.swapped_columns),
    ),
    Suspicion(
        "steps_out_of_order",
        "A file's steps lie before those of the file read before it.",
        "Name the files in training order (step2 sorts after step10 as text: pad the numbers), and leave out what a "
        "resumed run wrote again.",
        "names sort as text; a resumed run repeats steps",
        steps.steps_out_of_order,
    ),
)


def suspect(samples: Iterable[Sample]) -> tuple[Suspected, ...]:
    """Every suspicion held against every file, in the files' order; one finding per suspicion, in the table's order.

    A sample is looked at once, and only the one before it is still needed then, so an iterator keeps memory flat.
    """
    found: dict[str, tuple[str, str]] = {}
    n_files = dict.fromkeys((row.name for row in SUSPICIONS), 0)
    before: Sample | None = None
    for sample in samples:
        for row in SUSPICIONS:
            evidence = row.evidence(sample, before)
            if evidence is not None:
                found.setdefault(row.name, (sample.path, evidence))
                n_files[row.name] += 1
        before = sample
    return tuple(
        Suspected(row.name, *found[row.name], row.cure, n_files[row.name]) for row in SUSPICIONS if row.name in found
    )
