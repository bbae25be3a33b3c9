"""The rows that one reading of a dump set aside: counted, held against the limit, and written apart where that is
asked for."""

import json
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rlcorr_cli import __version__
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files import output_path
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.bad_rows import BadRowCounts, BadRowPolicy
from rlcorr_cli.reading.batch import Shard
from rlcorr_cli.reading.batches import BadRows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.formats import holding
from rlcorr_cli.reading.row_places import resolved

if TYPE_CHECKING:
    from rlcorr_cli.reading.datasets import Output


class BadRowLog:
    """Filled in the dump's order.  counts: by class.  rows: bad ones per input."""

    def __init__(self, policy: BadRowPolicy, output: "Output | None") -> None:
        self._counts = BadRowCounts()
        self.rows: Counter[str] = Counter()
        self._policy = policy
        self._output = output

    @property
    def counts(self) -> BadRowCounts:
        """What was set aside so far, with the places that reports show."""
        return self._counts.resolved(resolved)

    def add(self, shard: Shard, set_aside: BadRows) -> None:
        """What had to be left out of this shard."""
        self._counts = self._counts + set_aside.counts
        self.rows[shard.path] += set_aside.counts.n_rows
        if self._output is not None and set_aside.reasons:
            from rlcorr_cli.reading.rows_out import quarantined

            self._output.write(quarantined(set_aside))

    def check(self, n_good: int) -> None:
        """A DataError if a larger share of rows was left out than the limit."""
        n_bad = self._counts.n_rows
        share = n_bad / max(n_bad + n_good, 1)
        if share <= self._policy.limit:
            return
        classes = self.counts.by_class()
        listed = ", ".join(f"{name} {left_out.rows:,}" for name, left_out in classes.items())
        first = next(iter(classes.values())).first
        raise DataError(
            f"{n_bad:,} of {n_bad + n_good:,} rows are bad ({100 * share:.2f} %), which exceeds --max-bad-fraction "
            f"{self._policy.limit:g}: {listed}; {first}.",
            "`rlcorr inspect DUMP` counts them; a larger --max-bad-fraction goes on without them.",
        )

    def finish(self) -> None:
        """Have the rows set aside ready to be published; where there are none, no file is to be there."""
        if self._output is not None:
            problems = {name: left_out.to_dict() for name, left_out in self.counts.by_class().items()}
            self._output.finish_or_remove(json.dumps({"version": __version__, "problems": problems}))


@contextmanager
def bad_row_log(dump: Dump, staging: Outputs, *, overwrite: bool | None = None) -> Generator[BadRowLog]:
    """An empty log, whose rows are written apart where the dump's request says so.  overwrite: as of `quarantine`."""
    policy = dump.request.bad_rows
    destination = quarantine(policy, overwrite)
    if destination is None:
        yield BadRowLog(policy, None)
        return
    from rlcorr_cli.reading.datasets import Output, is_table

    columns = dump.table_columns if is_table(destination) else None
    with Output(staging, destination, 1, "", columns=columns, untouched=True) as output:
        yield BadRowLog(policy, output)


def quarantine(policy: BadRowPolicy, overwrite: bool | None = None) -> Destination | None:
    """Where bad rows go, if anywhere.  overwrite: None for a command without such an option."""
    if policy.quarantine is None:
        return None
    path = output_path("--quarantine", policy.quarantine)
    return Destination(path=path, option="--quarantine", overwrite=overwrite)


def check_quarantine(dump: Dump) -> None:
    """Refuse a quarantine that cannot hold the dump's bad rows, before the scan."""
    path = dump.request.bad_rows.quarantine
    if path is None:
        return
    fitting = holding({source.format for source in dump.sources})
    if not path.name.endswith(fitting):
        raise UsageError(
            f"{path}: bad rows are written in the dump's own format.", f"Name a file that ends in {', '.join(fitting)}."
        )
