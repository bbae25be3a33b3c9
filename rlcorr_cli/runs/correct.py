"""correct(): the corrected rows of one table, in memory, as `filter` would write them with all rows kept."""

from dataclasses import replace

from rlcorr_cli.errors import DataError
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.reading.rows_out import check_added
from rlcorr_cli.reading.tables import Table, one_table
from rlcorr_cli.results.written import Target
from rlcorr_cli.runs.analyze import opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.earlier_readings import search_budgets
from rlcorr_cli.runs.filter_passes import filter_work, filtered_rows
from rlcorr_cli.runs.reading import Reading


def correct(request: ReadRequest, chosen: ChosenPlan, computing: Computing) -> Table:
    """The rows as a pyarrow.Table.  The table is one training batch to a plan that looks at whole ones."""
    dump = opened(request, chosen)
    check_added(dump.available)
    budget_bounds = search_budgets(dump, chosen.plan, computing).bounds
    work = filter_work(
        dump,
        chosen,
        Target(path=None, keep_rejected=True),
        computing=computing,
        budget_bounds=budget_bounds,
        writes=True,
    )
    work = replace(work, measures=False)
    corrected = [
        batch.written for batch in filtered_rows(Reading.alone(dump, computing), work) if batch.written is not None
    ]
    if not corrected:
        raise DataError("The table has no rows.", "Give a table that holds at least one sequence.")
    return one_table(corrected)
