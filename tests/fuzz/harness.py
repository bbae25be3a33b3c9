"""Bytes in, one reading of them: anything but an RlcorrError or the same rows each way is a finding."""

import atexit
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from zlib import crc32

from rlcorr_cli.errors import RlcorrError
from rlcorr_cli.reading.bad_rows import BadRowPolicy
from rlcorr_cli.reading.batches import BadRows, CheckedRows
from rlcorr_cli.reading.dump import Dump, open_dump
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.rows_out import quarantined
from rlcorr_cli.reading.streams import BOM
from rlcorr_cli.results.saved_runs import RunTotals
from rlcorr_cli.results.saved_totals import VERSION, Head, read_totals, report_in
from rlcorr_cli.totals.packed import pack

SHM = Path("/dev/shm")
BATCH_TOKENS = 5
"""So few that even a small input makes several batches."""
NATIVE = {
    "pickle": "d.pkl",
    "torch": "d.pt",
    "msgpack": "rank_0.bin",
    "monitor": "stream.jsonl",
    "sealed": "stream/00000.jsonl.zst",
    "sqlite": "capture.sqlite",
}
TOTALS = "totals"
NAMES = {
    TOTALS: "d.rlcorr",
    "jsonl": "d.jsonl",
    "compressed": "d.jsonl.gz",
    "parquet": "d.parquet",
    "arrow": "d.arrow",
    **NATIVE,
}
REQUESTS = (
    (ReadRequest(paths=()), PlanColumns()),
    (ReadRequest(paths=(), group_by=("step",)), PlanColumns()),
    (
        ReadRequest(paths=(), columns={"current_log_probs": "old_log_probs"}),
        PlanColumns(mode="bypass", batch="step"),
    ),
)
"""How a dump is asked for, and what its plan reads; the file is named when there is one."""
ANY_POLICY = (ReadRequest(paths=()), PlanColumns(compares=False))
"""How a framework's file is asked for, so that one of the rollout policy alone is read to its end."""


@cache
def folder() -> Path:
    """Where inputs become files, until this process ends: in memory where there is such a place."""
    place = tempfile.TemporaryDirectory(prefix="rlcorr-fuzz-", dir=SHM if SHM.is_dir() else None)
    atexit.register(place.cleanup)
    return Path(place.name)


def opened(path: Path, asked: tuple[ReadRequest, PlanColumns]) -> Dump:
    """The file as it was asked for."""
    request, plan_columns = asked
    return open_dump(replace(request, paths=(str(path),)), plan_columns)


def taken(
    kind: str, data: bytes, asked: tuple[ReadRequest, PlanColumns] = REQUESTS[0]
) -> tuple[int, int] | RlcorrError:
    """Rows and tokens of the input, or how it is refused."""
    path = folder() / NAMES[kind]
    path.parent.mkdir(exist_ok=True)
    if kind == TOTALS:
        return _added_up(path, data)
    path.write_bytes(data)
    try:
        dump = opened(path, asked)
        found = counted(dump)
    except RlcorrError as error:
        with suppress(RlcorrError):  # it may be the file that is damaged, and not some rows
            check_setting_aside(opened(path, asked), error)
        return error
    check_setting_aside(dump, None)
    if kind == "jsonl":
        check_cuts(dump, len(data), found)
    return found


def _added_up(path: Path, data: bytes) -> tuple[int, int] | RlcorrError:
    """Rows and tokens of packed totals, in a file with the digest that it should have."""
    head = pack(Head(release="", paths=(), contents=None))
    body = len(head).to_bytes(8, "big") + head + data
    path.write_bytes(b"rlcorr totals %d\n" % VERSION + blake2b(body, digest_size=32).digest() + body)
    try:
        counts = report_in(str(path), RunTotals.added([read_totals(str(path))] * 2)).counts
    except RlcorrError as error:
        return error
    return counts["rows"], counts["tokens"]


def fuzzed(kind: str, data: bytes) -> None:
    """One execution, asking for the input in one of the ways."""
    taken(kind, data, ANY_POLICY if kind in NATIVE else REQUESTS[crc32(data) % len(REQUESTS)])


def counted(dump: Dump) -> tuple[int, int]:
    """Rows and tokens, which must be the same read whole."""
    narrow, whole = (portions(dump, whole) for whole in (False, True))
    assert all(portion.original is not None and len(portion.original) == portion.batch.n_rows for portion in whole)
    assert [portion.data.num_rows for portion in whole] == [portion.batch.n_rows for portion in whole]
    rows, tokens = added(narrow)
    assert (rows, tokens) == added(whole)
    return rows, tokens


def portions(dump: Dump, whole: bool) -> list[CheckedRows]:
    """All that is read; nothing is set aside."""
    state = dump.reader.state()
    read = [
        portion for shard in dump.shards for portion in dump.reader.checked(shard, BATCH_TOKENS, state, whole=whole)
    ]
    kept = [portion for portion in read if isinstance(portion, CheckedRows)]
    assert len(kept) == len(read)
    return kept


def added(read: Sequence[CheckedRows]) -> tuple[int, int]:
    return sum(portion.batch.n_rows for portion in read), sum(portion.batch.n_tokens for portion in read)


def check_setting_aside(dump: Dump, error: RlcorrError | None) -> None:
    """Rows go on or aside, each once, and aside only where reading would have stopped."""
    dump = replace(dump, request=replace(dump.request, bad_rows=BadRowPolicy(action="quarantine")))
    state = dump.reader.state()
    read = [portion for shard in dump.shards for portion in dump.reader.checked(shard, BATCH_TOKENS, state)]
    kept = [portion for portion in read if isinstance(portion, CheckedRows)]
    asides = [portion for portion in read if isinstance(portion, BadRows)]
    n_aside = sum(len(portion.reasons) for portion in asides)
    assert bool(n_aside) is (error is not None), f"{n_aside} rows are set aside, reading says: {error}"
    assert n_aside == sum(len(quarantined(portion)) for portion in asides if portion.reasons)
    path = Path(dump.sources[0].path)
    if dump.sources[0].format == "jsonl" and dump.shards[0].part is not None:
        lines = sum(bool(line.strip()) for line in path.read_bytes().removeprefix(BOM).split(b"\n"))
        assert added(kept)[0] + n_aside == lines


def check_cuts(dump: Dump, n_bytes: int, found: tuple[int, int]) -> None:
    """Byte ranges cut anywhere give the rows of the whole file, each once."""
    if any(shard.part is None for shard in dump.shards):
        return
    for size in (n_bytes // 2 + 1, n_bytes // 7 + 3):
        ends = [*range(0, n_bytes, size), n_bytes]
        cut = tuple(replace(dump.shards[0], index=i, part=part, n_bytes=0) for i, part in enumerate(pairwise(ends)))
        try:
            again = counted(replace(dump, shards=cut))
        except RlcorrError:
            continue  # a block of few rows may be read another way, which is stricter or less so
        assert again == found, f"{found} rows and tokens, {again} in ranges of {size} bytes"


HARNESSES: dict[str, Callable[[bytes], None]] = {kind: (lambda data, kind=kind: fuzzed(kind, data)) for kind in NAMES}
"""Name -> what is run on each input."""
