"""What is wrong with a dump: suspicions about its files, and the rows that one reading of it set aside, counted, held
against the limit, and written apart where that is asked for."""

import json
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from rlcorr_cli import __version__
from rlcorr_cli.batch import Shard
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.io.batches import Aside
from rlcorr_cli.io.dump import Dump
from rlcorr_cli.io.outputs import SUFFIXES, Output, check_target, create
from rlcorr_cli.io.peek import samples
from rlcorr_cli.io.quarantine import quarantined
from rlcorr_cli.quality.anomalies import suspect
from rlcorr_cli.quality.bad_rows import BadRows, Problems


class Ledger:
    """Filled in the dump's order.  rows: bad ones per input.  suspected: of whole files, from their first rows."""

    def __init__(self, dump: Dump, bad: BadRows, output: Output | None) -> None:
        self.suspected = suspect(samples(dump))
        self.problems = Problems()
        self.rows: Counter[str] = Counter()
        self._bad = bad
        self._output = output

    def add(self, shard: Shard, aside: Aside) -> None:
        """What a portion of this shard had to leave out."""
        self.problems = self.problems + aside.problems
        self.rows[shard.path] += aside.problems.n_rows
        if self._output is not None and aside.reasons:
            self._output.write(quarantined(aside))

    def check(self, n_good: int) -> None:
        """A DataError if more rows were left out than the limit bears."""
        n_bad = self.problems.n_rows
        share = n_bad / max(n_bad + n_good, 1)
        if share <= self._bad.limit:
            return
        found = self.problems.to_dict()
        classes = ", ".join(f"{name} {one['rows']:,}" for name, one in found.items())
        first = next(iter(found.values()))["first"]
        raise DataError(
            f"{n_bad:,} of {n_bad + n_good:,} rows are bad ({100 * share:.2f} %), more than --max-bad-fraction "
            f"{self._bad.limit:g} bears: {classes}; {first}.",
            "`rlcorr inspect DUMP` counts them; a larger --max-bad-fraction goes on without them.",
        )

    def finish(self) -> None:
        """Give the rows set aside their file; none is written where there are none."""
        if self._output is not None and self._output.rows:
            self._output.finish(json.dumps({"version": __version__, "problems": self.problems.to_dict()}))


@contextmanager
def ledger(dump: Dump, bad: BadRows) -> Generator[Ledger]:
    """A fresh one; what it wrote is discarded unless it was finished."""
    if bad.quarantine is None:
        yield Ledger(dump, bad, None)
        return
    with create(bad.quarantine, 1, "") as output:
        yield Ledger(dump, bad, output)


def check_quarantine(dump: Dump, bad: BadRows, overwrite: bool = False) -> None:
    """Refuse a place for bad rows that cannot hold them, before the scan."""
    path = bad.quarantine
    if path is None:
        return
    lines = any(source.format == "jsonl" for source in dump.sources)
    fitting = [suffix for suffix in SUFFIXES if (suffix != ".parquet") == lines]
    if not path.name.endswith(tuple(fitting)):
        raise UsageError(
            f"{path}: bad rows are written in the dump's own format.", f"Name a file that ends in {', '.join(fitting)}."
        )
    check_target(path, [source.path for source in dump.sources], overwrite)
