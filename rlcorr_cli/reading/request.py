"""What a reading of a dump is asked for: one value that goes from the command line, or the API, down to io unchanged.

Loads nothing heavy, because options are turned into it before anything is read.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Literal

from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.bad_rows import BadRowPolicy

if TYPE_CHECKING:
    from rlcorr_cli.reading.find import Found

IDS = ("sample_id", "step")
"""What tells rows apart: an id, and the step that it is of."""
NO_BATCH = "none"
"""What --batch-by takes for: the whole dump is one training batch."""
MOST_ROWS = 2**53 - 1
"""Counts of rows and tokens stay below what a float64 holds exactly."""
MOST_SEED = 2**32 - 1
"""A larger seed would be cut to 32 bits, and give the same draws as a smaller one."""
MOST_WORKERS = 1024
EngineName = Literal["auto", "threads", "processes", "ray"]
"""What runs the work on a dump's parts."""


@frozen(kw_only=True)
class ReadRequest:
    """Which dump, and how its rows are read and grouped.

    found: the files that its paths stand for, where they were looked for already; they are not looked for again.
    format: a container's name, or 'auto'.  columns: canonical name -> the dump's column, before any guess.
    group_by: columns to group rows by, canonical (`step`) or the dump's own.  batch_by: the column of training
    batches.  limit: how many rows to read, from the first.  bad_rows: what is done about bad rows.  drawn_by: which of
    these, where a dump has them, tell its rows apart.  ids_beside: columns that do so beside sample_id.  cluster_by:
    the column whose rows of one value the bootstrap draws together; None for that of prompts, where there is one, and
    NO_CLUSTERS for every row by itself.
    sample: how many valid tokens the rows have, at most, in which the cause of a gap is sought; None for as many as
    cost little.
    """

    paths: tuple[str, ...]
    found: "Found | None" = None
    format: str = "auto"
    columns: Mapping[str, str] = field(default_factory=dict[str, str])
    group_by: tuple[str, ...] = ()
    batch_by: str | None = None
    limit: int | None = None
    bad_rows: BadRowPolicy = field(default_factory=BadRowPolicy)
    drawn_by: tuple[str, ...] = IDS
    ids_beside: tuple[str, ...] = ()
    cluster_by: str | None = None
    sample: int | None = None

    @property
    def files(self) -> tuple[str, ...]:
        """All files that are read; what was named, where they were not looked for."""
        if self.found is None:
            return self.paths
        return tuple(path for source in self.found.sources for path, _ in source.files)


@frozen(kw_only=True)
class PlanColumns:
    """What a plan reads of a dump.

    mode: which two policies it compares.  needed: canonical columns that must be there beside those.
    wanted: those that are read where the dump has them.
    row_advantage: whether the mean advantage of each row is read where the dump has advantages; a row without one that
    is finite is sound all the same.
    batch: the column of training batches, which rows are grouped by before all others; None without one.
    batch_required: whether every file must have it; else it is left out where one has not.
    compares: whether two policies must be there; without, the rollout's alone will do.
    levels: whether to read what a gap may sit in, where the dump has it: columns of levels, and token ids.  by: further
    columns of levels, which must be there.  clusters: whether rows are drawn by a bootstrap, and so the column of their
    clusters is read.
    """

    mode: Mode = "decoupled"
    needed: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()
    row_advantage: bool = False
    batch: str | None = None
    batch_required: bool = False
    compares: bool = True
    levels: bool = False
    by: tuple[str, ...] = ()
    clusters: bool = False

    @property
    def optional(self) -> tuple[str, ...]:
        """What is wanted, and advantages where only means of rows are told of them."""
        return (*self.wanted, *(("advantages",) if self.only_row_advantage else ()))

    @property
    def only_row_advantage(self) -> bool:
        """Whether of advantages no more is read than the mean of each row."""
        return self.row_advantage and "advantages" not in (*self.needed, *self.wanted)
