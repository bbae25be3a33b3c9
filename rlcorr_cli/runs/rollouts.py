"""The rollouts of a dump, counted in a reading of their own where a framework's averages are by rollout."""

from dataclasses import dataclass

from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.runs.scan import Computing, ShardNotes, ShardReading, ShardResult, scan
from rlcorr_cli.totals.rollouts import RolloutTotals


def count_rollouts(dump: Dump, computing: Computing) -> RolloutTotals | None:
    """Those of several samples; None where the dump is read for none, or can be read only once."""
    if not dump.roles.rollouts or dump.stdin is not None:
        return None
    counting = CountRollouts(ShardReading.of(dump, computing))
    return RolloutTotals.total(part for _, part in scan(dump, computing, counting)).shared()


def rollout_notes(dump: Dump) -> tuple[str, ...]:
    """That rollouts go uncounted, where they do."""
    if not dump.roles.rollouts or dump.stdin is None:
        return ()
    column = dump.roles.rollouts[0]
    return (
        f"{column} is not looked at, which takes a reading of its own, and standard input can be read only once: each "
        "sample counts as a rollout. Save it to a file if some have several.",
    )


@dataclass(frozen=True)
class CountRollouts:
    """Shard -> the rollouts of its sound rows."""

    reading: ShardReading

    def __call__(self, shard: Shard) -> ShardResult[RolloutTotals]:
        """Count one shard."""
        beside = ShardNotes()
        batches = (rows.batch for rows in self.reading.sound_rows(shard, beside))
        counted = (
            RolloutTotals.of(batch.rollout_keys, batch.lengths) for batch in batches if batch.rollout_keys is not None
        )
        return ShardResult(RolloutTotals.total(counted), beside)
