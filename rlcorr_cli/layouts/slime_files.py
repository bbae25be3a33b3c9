"""Which of slime's or miles' files a file is, and which files of one step belong together.

Both save with torch.  A rollout file has the sequences as the engine gave them; a training file has what the trainer
made of them, of a whole step (slime's format 2) or of one rank (slime's format 1, miles).
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from rlcorr_cli.layouts.recognise import FileStart
from rlcorr_cli.storage import filesystem

ROLLOUT, STEP, RANK, TRAJECTORY = "rollout", "step", "rank", "trajectory"
TRAJECTORY_KEYS = ("sample_index", "group_index", "status", "messages")
MILES_MARK = b"qkv_format"
"""What miles' training files end with, and slime's do not have."""


@dataclass(frozen=True)
class SlimeFile:
    """One of their files, by its head."""

    start: FileStart

    @cached_property
    def kind(self) -> str:
        """ROLLOUT, STEP, RANK or TRAJECTORY; '' of another file."""
        words = self.start.words
        if words[:2] == ("rollout_id", "samples") or (words[:2] == ("rollout_id", "metadata") and "samples" in words):
            return ROLLOUT
        if words[:2] == ("format_version", "rollout_id"):
            return STEP
        if words[:3] == ("rollout_id", "rank", "rollout_data"):
            return RANK
        row = self.start.row
        has_log_probs = any("log" in key and "prob" in key for key in row)
        return TRAJECTORY if all(key in row for key in TRAJECTORY_KEYS) and not has_log_probs else ""

    @property
    def is_whole(self) -> bool:
        """Whether anybody can tell whose it is: half of a rank's file ends before what miles adds."""
        return self.kind != RANK or bool(self.start.tail)

    @cached_property
    def of_miles(self) -> bool:
        """Whether only miles writes it so."""
        if self.kind == ROLLOUT:
            return self.start.words[1] == "metadata"
        return self.kind == TRAJECTORY or (self.kind == RANK and MILES_MARK in self.start.tail)

    @property
    def sign(self) -> str:
        """What it is known by, in words."""
        if self.kind == TRAJECTORY:
            return f"keys {', '.join(TRAJECTORY_KEYS)}"
        keys = {ROLLOUT: ("rollout_id", "samples"), STEP: ("format_version", "rollout_id")}
        marks = ("metadata",) if self.of_miles and self.kind == ROLLOUT else ("qkv_format",) if self.of_miles else ()
        return f"torch file, keys {', '.join((*keys.get(self.kind, ('rollout_id', 'rank', 'rollout_data')), *marks))}"

    @property
    def is_evaluation(self) -> bool:
        """Only its name tells."""
        return self.kind == ROLLOUT and self.start.name.startswith("eval_")

    @property
    def step(self) -> int | None:
        """Its rollout_id."""
        return self.start.numbers.get("rollout_id")

    @property
    def folder(self) -> str:
        """The folder that it is in."""
        return os.path.dirname(filesystem(self.start.path).identity(self.start.path))


def unite(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """The training files of a step, and the rollout file of the same; evaluations and trajectories only where there
    is nothing else."""
    files = [SlimeFile(FileStart(path)) for path in paths]
    for aside in (lambda file: file.kind == TRAJECTORY, lambda file: file.is_evaluation):
        files = [file for file in files if not aside(file)] or files
    trained: dict[tuple[int | None, str, str], list[SlimeFile]] = {}
    for file in files:
        if file.kind in (STEP, RANK) and file.is_whole:
            trained.setdefault((file.step, file.folder, file.kind), []).append(file)
    generated = [file for file in files if file.kind == ROLLOUT and not file.is_evaluation]
    owner = {id(file): key for key, group in trained.items() for file in group}
    partner = _partners(generated, list(trained))
    units: dict[object, tuple[str, ...]] = {}
    for file in files:
        key = owner.get(id(file)) or partner.get(id(file))
        if key is None:
            units[id(file)] = (file.start.path,)
        elif key not in units:
            joined = [other for other in generated if partner.get(id(other)) == key]
            units[key] = tuple(member.start.path for member in (*trained[key], *joined))
    return list(units.values())


def _partners(
    generated: Sequence[SlimeFile], trained: Sequence[tuple[int | None, str, str]]
) -> dict[int, tuple[int | None, str, str]]:
    """Rollout file -> the training files of its step: the only ones, or those in its folder or beside its folder."""
    partners: dict[int, tuple[int | None, str, str]] = {}
    for file in generated:
        keys = [key for key in trained if key[0] == file.step]
        rivals = [other for other in generated if other.step == file.step]
        near = [key for key in keys if key[1] == file.folder] or [
            key for key in keys if os.path.dirname(key[1]) == os.path.dirname(file.folder)
        ]
        if len(keys) == 1 and len(rivals) == 1:
            partners[id(file)] = keys[0]
        elif len(near) == 1 and near[0] not in partners.values():
            partners[id(file)] = near[0]
    return partners
