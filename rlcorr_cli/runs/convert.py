"""convert(): a dump, a framework's own files most of all, as canonical rows that any tool reads."""

import json
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rlcorr_cli import __version__
from rlcorr_cli.errors import DataError, UsageError
from rlcorr_cli.files.destinations import Destination
from rlcorr_cli.files.outputs import Outputs
from rlcorr_cli.reading.convert import SCORED, Partner, canonical_rows
from rlcorr_cli.reading.datasets import Output, dataset, is_table
from rlcorr_cli.reading.dump import open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.results.written import Converted
from rlcorr_cli.runs.reading import Watch, watched

ANY_POLICY = PlanColumns(compares=False)


def destination(path: Path, overwrite: bool) -> Destination:
    """Where the rows go."""
    return dataset(path, "⟦output⟧", overwrite)


def convert(
    request: ReadRequest,
    path: Path,
    *,
    join: ReadRequest | None = None,
    on: Sequence[str] = ("sample_id",),
    overwrite: bool = False,
    rows_per_file: int = 100_000,
    watch: Watch | None = None,
) -> Converted:
    """Write every row in canonical columns, in the order of the files named and the rows in them.

    join: another dump of the same tokens, whose rollout log-probs become old_log_probs; on: what tells its rows.
    """
    dump = open_dump(request, ANY_POLICY)
    partner = None
    if join is not None:
        if dump.roles.old or dump.roles.current:
            raise UsageError(f"The dump holds {SCORED} already.", "Leave ⟦join⟧ out.")
        partner = Partner.of(open_dump(join, ANY_POLICY), on)
    place = destination(path, overwrite)
    n_rows, unmatched, columns = Counter[str](), 0, dict[str, str]()
    with ExitStack() as stack:
        progress = stack.enter_context(watched(dump, watch))
        staging = stack.enter_context(Outputs())
        about = json.dumps({"version": __version__})
        table = dump.table_columns if is_table(place) and partner is None else None
        output = stack.enter_context(Output(staging, place, rows_per_file, about, columns=table))
        for shard, rows in canonical_rows(dump):
            paired = rows if partner is None else partner.with_partners(rows, shard.path)
            if progress is not None:
                progress(0, shard.n_bytes * (shard.path not in n_rows))
            n_rows[shard.path] += len(rows)
            unmatched += len(rows) - len(paired)
            columns = columns or {field.name: str(field.type) for field in paired.table.schema}
            if len(paired):
                output.write(paired)
        if join is not None and not output.rows:
            what = f"No row matches a row of {join.paths[0]}."
            raise DataError(what, f"They were joined on {', '.join(on)}; see ⟦on⟧.")
        if not output.rows:
            raise DataError(
                f"{dump.sources[0].path}: there are no rows to write.", "`rlcorr inspect` shows what it holds."
            )
        output.finish(about)
        staging.publish()
        return Converted(
            path=path,
            inputs=tuple(dump.inputs(n_rows)),
            columns=columns,
            rows=output.rows,
            n_bytes=output.n_bytes,
            notes=dump.notes,
            unmatched=None if partner is None else (unmatched, len(partner.rows) - len(partner.used)),
        )
