"""Rows token by token as cards of a page: what the page's script makes spans and colours of.

Each card is HTML with its facts and its far tokens as text.  Beside it stands a block of JSON with all of its tokens,
which the script reads when the card comes into view: the text in one piece, and the tokens' lengths, ids and numbers as
base 64.  A number takes four characters: the upper three bytes of a float32, five digits.
"""

import base64
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import numpy as np
from markupsafe import Markup

from rlcorr_cli.files.tfrecords import varint
from rlcorr_cli.frozen import frozen
from rlcorr_cli.results.inspected import OneRow, TokenRows
from rlcorr_cli.show.document import Table
from rlcorr_cli.show.numbers import plural
from rlcorr_cli.show.token_rows import (
    facts_of_row,
    far_table,
    far_tokens,
    inert,
    is_partly_rejected,
    policy_headings,
    short_value,
    text_source,
    token_face,
    votes_of_rules,
)

N_BINS = 61
LAST_LINE = 120
"""Characters of a prompt that is folded."""
NEAR_ALL = 0.995
"""The share of |log-ratios| that lie within four fifths of the histogram: one outlier never sets its ends."""
N_SHADES = 8
SHADES = {
    "a": ((253, 235, 214), (244, 150, 70), (60, 38, 20), (150, 72, 8)),
    "b": ((221, 236, 250), (110, 175, 232), (20, 38, 58), (28, 94, 152)),
    "s": ((236, 228, 248), (178, 150, 224), (36, 28, 54), (100, 68, 156)),
}
"""Class of colours (above 0, below 0, by size) -> the palest and the fullest, on light pages and on dark ones."""


@frozen(kw_only=True)
class Card:
    """A row.  anchor: of links to it; keys: what cards are sorted and filtered by."""

    anchor: str
    name: str
    facts: str
    problem: str
    votes: Sequence[str]
    prompt: str
    last_line: str
    keys: Sequence[tuple[str, str]]
    n_tokens: int
    n_characters: int
    table: Table | None
    data: Markup


@frozen(kw_only=True)
class Bar:
    """A bar of the histogram, in its units: x from 0 to N_BINS, height from 0 to 1.  title: its range and tokens."""

    x: int
    height: float
    title: str


@frozen(kw_only=True)
class Viewer:
    """All cards with what stands above them.  sorts: name of a key -> what it is called; colours: likewise."""

    cards: Sequence[Card]
    end: float
    bars: Sequence[Bar]
    sorts: Sequence[tuple[str, str]]
    colours: Sequence[tuple[str, str]]
    has_groups: bool
    has_rejected: bool
    source: str


def viewer(result: TokenRows) -> Viewer:
    """The cards of some rows."""
    anchors = _anchors(row.name for row in result.rows)
    cards = [_card(row, anchor, result.by) for row, anchor in zip(result.rows, anchors, strict=True)]
    has = {name for card in cards for name, value in card.keys if value}
    names = (
        ("step", "step"),
        ("group", "prompt"),
        ("reward", "reward"),
        ("gap", "gap"),
        ("kept", "kept"),
        ("n", "length"),
    )
    end, bars = _ratio_histogram(result)
    colours = [("l", "log-ratio"), ("r", "rollout logp")]
    colours += [("w", "weight")] if any(row.weights is not None for row in result.rows) else []
    colours += [("e", "entropy")] if any(row.entropies is not None for row in result.rows) else []
    groups = [row.group for row in result.rows if row.group is not None]
    return Viewer(
        cards=cards,
        end=end,
        bars=bars,
        sorts=[(name, label) for name, label in names if name in has],
        colours=colours,
        has_groups=len(set(groups)) < len(groups),
        has_rejected=any(row.says for row in result.rows),
        source=text_source(result),
    )


def _anchors(names: Iterable[str]) -> Iterator[str]:
    """What a link to each row names: 'row=s046', and of a second row of that name 'row=s046~2'."""
    seen = dict[str, int]()
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        again = f"~{seen[name]}" if seen[name] > 1 else ""
        yield f"row={quote(name.encode('utf-8', 'backslashreplace'), safe='')}{again}"


def _card(row: OneRow, anchor: str, by: str | None) -> Card:
    prompt = inert(row.texts.get("prompt", ""))
    data, n_characters = _tokens_as_json(row)
    kept = [not token.rejected_by for token in row.by_token if token.counts]
    gap = max((abs(ratio) for ratio in row.log_ratios), default=None)
    facts = {name: row.facts.get(name) for name in ("step", "global_step", "reward")}
    step = facts["step"] if facts["step"] is not None else facts["global_step"]
    keys = {
        "step": step,
        "group": row.group,
        "reward": facts["reward"],
        "gap": gap,
        "kept": sum(kept) / len(kept) if kept and row.says else None,
        "n": row.n_tokens,
    }
    return Card(
        anchor=anchor,
        name=short_value(row.name),
        facts=", ".join(facts_of_row(row, by)),
        problem="" if row.problem is None else inert(row.problem),
        votes=votes_of_rules(row),
        prompt=prompt,
        last_line=short_value(prompt.strip().rpartition("\n")[2], LAST_LINE),
        keys=[(name, "" if value is None else inert(str(value))) for name, value in keys.items()],
        n_tokens=row.n_tokens,
        n_characters=n_characters,
        table=far_table(row) if far_tokens(row) else None,
        data=data,
    )


def _tokens_as_json(row: OneRow) -> tuple[Markup, int]:
    """The tokens of a row as JSON that may stand in a page, and how many characters their text has."""
    tokens, partly = list(row.by_token), is_partly_rejected(row)
    texts = [token_face(token) for token in tokens]
    far = {token.place for token in far_tokens(row)}
    flags = [token.counts + 2 * (partly and bool(token.rejected_by)) + 4 * (token.place in far) for token in tokens]
    ids = [token.token for token in tokens]
    value: dict[str, Any] = {
        "t": "".join(texts),
        "n": _integers([len(text.encode("utf-16-le", "surrogatepass")) // 2 for text in texts]),
        "f": _integers(flags),
        "p": policy_headings(row),
        "c": [_floats(token.log_probs[i] for token in tokens) for i in range(len(row.log_probs))],
        "l": _floats(token.log_ratio for token in tokens),
    }
    if row.weights is not None:
        value["w"] = _floats(token.weight for token in tokens)
    if row.entropies is not None:
        value["e"] = _floats(token.entropy for token in tokens)
    if tokens and all(type(i) is int and 0 <= i < 1 << 31 for i in ids):
        value["i"] = _integers([int(i or 0) for i in ids])
    # In a script, `<` could begin the end of it; the other two end lines in older readers of JSON.
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
    escaped = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(escaped), len(value["t"])


def _floats(values: Iterable[Any]) -> str:
    """Numbers as base 64, NaN for what is none: the upper three bytes of each float32, rounded."""
    numbers = np.array([value if isinstance(value, int | float) else math.nan for value in values], np.float64)
    with np.errstate(all="ignore"):
        bits = numbers.astype(np.float32).view(np.uint32)
    finite = np.isfinite(numbers)
    bits = np.where(finite & (bits & 0x7FFFFFFF < 0x7F7FFF00), bits + 0x80, bits)
    parts = np.stack([bits >> 24, bits >> 16, bits >> 8], axis=1).astype(np.uint8)
    return base64.b64encode(parts.tobytes()).decode()


def _integers(values: Sequence[int]) -> str:
    """Whole numbers as base 64 of their bytes."""
    return base64.b64encode(b"".join(map(varint, values))).decode()


def _ratio_histogram(result: TokenRows) -> tuple[float, list[Bar]]:
    """The log-ratios of all tokens: where the histogram ends on both sides, and its bars; the outer ones hold all that
    lies beyond."""
    ratios = np.array([ratio for row in result.rows for ratio in row.log_ratios])
    ratios = ratios[np.isfinite(ratios)]
    if not len(ratios):
        return 1.0, []
    end = max(1.25 * float(np.quantile(np.abs(ratios), NEAR_ALL)), 1e-6)
    edges = np.linspace(-end, end, N_BINS + 1)
    counts, _ = np.histogram(np.clip(ratios, -end, end), edges)
    top = math.log1p(int(counts.max()))
    ranges = [f"{low:.3g} to {high:.3g}" for low, high in pairwise(edges.tolist())]
    ranges[0], ranges[-1] = f"below {edges[1]:.3g}", f"above {edges[-2]:.3g}"
    return end, [
        Bar(x=i, height=math.log1p(n) / top, title=f"{where}: {plural(n, 'token')}")
        for i, (where, n) in enumerate(zip(ranges, counts.tolist(), strict=True))
    ]


def shades() -> Iterator[tuple[str, str, str]]:
    """Each class of a colour, and the colour on light pages and on dark ones."""
    for name, ends in SHADES.items():
        for i in range(1, N_SHADES + 1):
            share = (i - 1) / (N_SHADES - 1)
            light, dark = (
                "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*pair, strict=True))
                for pair in (ends[:2], ends[2:])
            )
            yield f"{name}{i}", light, dark
