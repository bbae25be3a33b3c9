"""slime's rollout_data/{id}.pt and train_data/{id}.pt: either alone, or both of one step joined.

Joined, a row is a sequence that was trained on: reward, versions, status and group from the rollout file, log-probs,
mask and advantages from the training file.  The tokens of both have to be the same.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from rlcorr_cli.errors import DataError
from rlcorr_cli.layouts import slime_rollout, slime_train
from rlcorr_cli.layouts.layout import OpenedDump, Sample
from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.layouts.slime_files import RANK, ROLLOUT, STEP, TRAJECTORY, SlimeFile
from rlcorr_cli.layouts.slime_rollout import RolloutFile, read_rollout
from rlcorr_cli.layouts.slime_train import TrainRow, read_ranks, read_step
from rlcorr_cli.layouts.torch_files import pickle_of
from rlcorr_cli.layouts.values import HINT, as_text

BEFORE_TRAINING = (
    "It is a rollout file, written before training. Name the training file of the same id, too; --dump-details has "
    "both written, --save-debug-train-data the latter."
)
UNTRAINED = "sequences of the rollout file that its training files do not hold are left out."
FROM_ROLLOUT = ("reward", "group_id", "policy_version", "policy_version_end", "source", "status", "remove_sample")
NO_LOG_PROBS = (
    "Name rollout_data/{id}.pt and train_data/{id}_{rank}.pt, which --dump-details has written beside it, instead."
)


def recognise(start: FileStart) -> str | None:
    """By the first keys of its pickle, where only slime has them so."""
    file = SlimeFile(start)
    return file.sign if file.kind and file.is_whole and not file.of_miles else None


def open_unit(paths: Sequence[str]) -> OpenedDump:
    """A rollout file, the training files of a step, or both."""
    kinds: dict[str, list[str]] = {}
    for path in paths:
        kinds.setdefault(SlimeFile(FileStart(path)).kind, []).append(path)
    if TRAJECTORY in kinds:
        raise DataError("its lines hold texts and rewards, no log-probs: it is a trajectory of miles.", NO_LOG_PROBS)
    if "" in kinds:
        pickle_of(kinds[""][0])  # says what is wrong with a file of torch
        raise DataError("it is neither a rollout file nor a training file of slime or miles.", HINT)
    if STEP in kinds or RANK in kinds:
        rows, notes = read_ranks(kinds[RANK]) if RANK in kinds else ([], ())
        rows += [row for path in kinds.get(STEP, ()) for row in read_step(path)]
        return _joined(rows, read_rollout(kinds[ROLLOUT][0]), notes) if ROLLOUT in kinds else _trained(rows, notes)
    return _generated(read_rollout(paths[0]))


def _generated(rollout: RolloutFile) -> OpenedDump:
    return OpenedDump(
        columns=rollout.columns(),
        samples=rollout.rows,
        notes=rollout.notes(),
        types=slime_rollout.TYPES,
        missing_policy_hint=BEFORE_TRAINING,
    )


def _trained(rows: Sequence[TrainRow], notes: tuple[str, ...]) -> OpenedDump:
    return OpenedDump(
        columns=slime_train.columns(rows),
        samples=lambda: (row.sample() for row in rows),
        notes=notes,
        types=slime_train.TYPES,
        missing_policy_hint=slime_train.lacks(rows),
    )


def _joined(rows: Sequence[TrainRow], rollout: RolloutFile, notes: tuple[str, ...]) -> OpenedDump:
    trained, generated = slime_train.columns(rows), rollout.columns()
    engine = "rollout_log_probs" if "rollout_log_probs" in generated and "rollout_log_probs" not in trained else None
    added = [name for name in (*FROM_ROLLOUT, engine) if name in generated and name not in trained]
    types = {**slime_rollout.TYPES, **slime_train.TYPES}
    if engine:
        del types[engine]
    return OpenedDump(
        columns=[*trained, *added],
        samples=lambda: _pairs(rows, rollout, engine),
        notes=(*notes, *rollout.notes(), *((UNTRAINED,) if len(rollout.samples) > len(rows) else ())),
        types=types,
        missing_policy_hint=slime_train.lacks(rows),
    )


def _pairs(rows: Sequence[TrainRow], rollout: RolloutFile, engine: str | None) -> Iterator[Sample]:
    """The trained sequences, each with what the rollout file has of it."""
    by_index: dict[object, list[int]] = {}
    for number, sample in enumerate(rollout.samples):
        by_index.setdefault(as_text(sample.get("index")), []).append(number)
    for row in rows:
        number = _partner(row, rollout, by_index)
        about = {name: value for name, value in rollout.about(number).items() if name in FROM_ROLLOUT}
        log_probs = {engine: rollout.log_probs(number)} if engine else {}
        yield {**row.sample(), **{name: value for name, value in about.items() if value is not None}, **log_probs}


def _partner(row: TrainRow, rollout: RolloutFile, by_index: dict[object, list[int]]) -> int:
    """The number of the same sequence in the rollout file.  Several may share an index: the tokens tell."""
    index = as_text(row.values.get("sample_index"))
    tokens = row.tokens()
    for number in by_index.get(index, ()):
        if np.array_equal(rollout.tokens(number), tokens):
            return number
    raise DataError(
        f"its sequence {row.number} (sample_index {index}) is not in {rollout.path}, or has other tokens there.",
        "Are both of one run? Name the training files alone, then.",
    )
