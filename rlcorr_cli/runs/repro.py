"""repro_rows(): the fewest rows that show a dump's gap, each cut after its first far tokens, to be scored again.

First the dump is inspected for the likely cause.  Then its rows are read once more, and ranked by their share of the
gap, the sum of l^2 over all tokens, l being a log-ratio; where the cause is a fault of single rows, by that of these
rows alone, as the search for causes finds them in every batch.  As many are kept as hold HALF of it together, and
MOST_ROWS at most.

The far tokens of a row are those that are HALF as far off as its furthest one, or more, so that they are few where a
few are wrong, whatever their size and the noise around them.  A row is cut after the FIRST_FAR first of them.
"""

import math
import sys
from dataclasses import replace

import numpy as np

from rlcorr_cli.causes.rows import FAULTY_ROWS
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.causes.wording import and_list, percent
from rlcorr_cli.errors import DataError, plural
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.row_sampling import RowSampler, Sampling, summed_squares
from rlcorr_cli.reading.batches import CheckedRows
from rlcorr_cli.reading.dump import Dump
from rlcorr_cli.reading.request import ReadRequest
from rlcorr_cli.reading.token_text import TokenizerProcess
from rlcorr_cli.results.inspected import OneRow, TokenRows
from rlcorr_cli.runs.analyze import opened
from rlcorr_cli.runs.computing import Computing
from rlcorr_cli.runs.inspect import inspect
from rlcorr_cli.runs.reading import check_rereadable
from rlcorr_cli.runs.token_rows import PROMPT_IDS, Choice, ChooseRows, ShownColumns, are_ids, with_texts
from rlcorr_cli.totals.flat import Floats

MOST_ROWS, FIRST_FAR, HALF = 5, 8, 0.5
MOST_LOOKED_AT = 50
"""Rows among which those are chosen that have the ids of all their tokens."""
SHARE = "share of the gap"


def repro_rows(
    request: ReadRequest,
    chosen: ChosenPlan,
    computing: Computing,
    *,
    where: str = "",
    tokenizer: TokenizerProcess | None = None,
) -> TokenRows:
    """The rows of a dump that show its gap, of those for which a condition holds.  request: as of
    `ignoring_bad_rows`."""
    dump = opened(request, chosen)
    check_rereadable(dump)
    _refuse_without_ids(dump)
    seen = inspect(request, chosen, computing)
    dump = dump.with_request(bad_rows=replace(request.bad_rows, quarantine=None, action="skip"))
    fault, choice = "" if seen.cause is None else seen.cause.cause, Choice(n_worst=MOST_LOOKED_AT, where=where)
    found, total = RankedByShare.of(dump, chosen, computing, choice=choice, fault=fault).read(dump, computing)
    differing = [row for row in found.rows if row.value]
    usable = [row for row in differing if _has_ids(row)]
    if not usable:
        what = "No row that differs has the ids of all its tokens." if differing else "No row differs."
        raise DataError(what, "`⟦inspect(DUMP)⟧ ⟦worst 5⟧` shows some rows.")
    held = np.cumsum([row.value or 0.0 for row in usable[:MOST_ROWS]]) / total
    whole = usable[: min(MOST_ROWS, int(np.searchsorted(held, HALF)) + 1)]
    trained = (dump.roles.current if chosen.plan.mode == "bypass" else None) or dump.roles.train
    rows = tuple(_cut(row, (dump.roles.rollout, trained), total) for row in whole)
    of_gap, left = percent(float(held[len(rows) - 1])), percent(sum(row.value or 0.0 for row in rows))
    lies = f"{of_gap} of the gap lies in {len(rows)} of {plural(found.n_matching, 'row')}, and {left} in what is kept"
    about = f"{lies} of each: a row ends with its first far tokens."
    cause = next((each.name for each in seen.anomalies), fault)
    before = differing.index(whole[-1]) + 1 - len(rows)
    passed_over = f"Passed over: {plural(before, 'row')} with a larger share, without ids of all tokens."
    result = replace(
        found,
        by=SHARE,
        rows=rows,
        about=(about, *([f"Likely cause: {cause}. {ALL_CAUSES[cause].meaning}"] if cause else [])),
        notes=(*seen.notes, *([passed_over] if before else [])),
    )
    return with_texts(result, tokenizer)


def _refuse_without_ids(dump: Dump) -> None:
    """Refuse a dump without a column of the ids of its prompts, or of its responses."""
    has_prompts = {*PROMPT_IDS} & {*dump.available, *ShownColumns.of(dump).copies}
    has = {"prompt": has_prompts, "response_token_ids": "token_ids" in dump.roles.of_tokens}
    lacks = [name for name, is_there in has.items() if not is_there]
    if lacks:
        columns = and_list([f"{name.removesuffix('_token_ids')}_token_ids" for name in lacks])
        maps = and_list([f"⟦map {name}=COLUMN⟧" for name in lacks])
        what = f"No engine can be asked for these rows again: the dump has no {columns}."
        raise DataError(what, f"Write the ids of the tokens beside their log-probs, or name their column: {maps}.")


def _has_ids(row: OneRow) -> bool:
    prompt, response = row.prompt_ids or (), row.tokens or ()
    return are_ids(prompt) and are_ids(response) and min(*prompt, *response) >= 0


def _cut(row: OneRow, policies: tuple[str, str], total: float) -> OneRow:
    """A row up to its first far tokens, and its share of a total; with the two policies' log-probs under their
    canonical names, null of a token that is masked or was never scored."""
    gaps = np.abs(row.log_ratios)
    far = np.flatnonzero(row.valid)[gaps >= HALF * gaps.max()][:FIRST_FAR]
    n = int(far[-1]) + 1
    n_valid = sum(row.valid[:n])

    def known(column: str) -> tuple[float | None, ...]:
        values = zip(row.log_probs[column][:n], row.valid, strict=False)
        return tuple(x if counts and x is not None and math.isfinite(x) else None for x, counts in values)

    return replace(
        row,
        far=tuple(far.tolist()),
        value=float(gaps[:n_valid] @ gaps[:n_valid]) / total,
        tokens=row.tokens and row.tokens[:n],
        strings=row.strings and row.strings[:n],
        entropies=row.entropies and row.entropies[:n],
        valid=row.valid[:n],
        log_probs={"rollout_log_probs": known(policies[0]), "old_log_probs": known(policies[1])},
        log_ratios=row.log_ratios[:n_valid],
        weights=row.weights and row.weights[:n_valid],
        says=tuple(replace(vote, keep=vote.keep[:n_valid]) for vote in row.says),
    )


@frozen(kw_only=True)
class RankedByShare(ChooseRows):
    """The rows that hold most of the gap.  fault: the likely cause; where it is of single rows, only these count."""

    fault: str

    def ranks(self, rows: CheckedRows) -> Floats:
        """The sum of l^2 of each row of a batch, f64[B]; NaN of a row without a valid token."""
        squares = summed_squares(rows.batch, self.reading.device, self.plan.mode)
        if self.fault in FAULTY_ROWS:
            sampler = RowSampler(Sampling(mode=self.plan.mode, most=sys.maxsize), self.reading.reader.roles)
            sampler.take(rows)  # all of them
            squares[rows.batch.filled] *= FAULTY_ROWS[self.fault](sampler.sample)
        return squares
