"""GLOSSARY: every word that a report, a page or a help prints and that no other table defines.

The manual's page `glossary` is where the words are written, and this module reads it: a heading, and below it a list of
words, each as `- **name** (also: other, names): its meaning.`  `rlcorr explain NAME` prints the same; metrics, presets,
causes, columns, problems and symbols have tables of their own, and `explain` reads all of them.  The meaning of a
column heading that shows a metric ends with "The metric NAME.", and `explain` adds the metric's definition.
"""

import re
from collections.abc import Mapping, Sequence

from rlcorr_cli.frozen import frozen
from rlcorr_cli.show.pages import MANUAL

_TERM = re.compile(r"- \*\*(?P<name>.+?)\*\*(?: \(also: (?P<also>.*?)\))?: (?P<meaning>.+)")
_METRIC = re.compile(r"The metric (\w+)\.$")


@frozen(kw_only=True)
class Term:
    """A word and what it means, in whole sentences.  also: other words for it.  metric: the one that it heads in a
    table, if any."""

    name: str
    meaning: str
    also: tuple[str, ...] = ()
    metric: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the other words for it."""
        return (self.name, *self.also)


def read_glossary(page: str) -> dict[str, list[Term]]:
    """The terms of a page below each of its headings.  A line of a list that is no term is a ValueError."""
    sections = (section.partition("\n")[::2] for section in page.split("\n## ")[1:])
    return {heading: [_term(item) for item in body.split("\n- ")[1:]] for heading, body in sections}


def _term(item: str) -> Term:
    """A term of its item in a list, whose lines are joined."""
    found = _TERM.fullmatch(" ".join(f"- {item}".split()))
    if found is None:
        raise ValueError(f"no term of the glossary: {item}")
    also, metric = found["also"], _METRIC.search(found["meaning"])
    return Term(
        name=found["name"],
        meaning=found["meaning"],
        also=tuple(also.split(", ")) if also else (),
        metric=metric[1] if metric else "",
    )


GLOSSARY: Mapping[str, Sequence[Term]] = read_glossary((MANUAL / "glossary.md").read_text(encoding="utf-8"))
"""Heading of the page -> its terms."""


def key_of(name: str) -> str:
    """What a name is looked up by: `seq ESS`, `seq-ess` and `seq_ess` are the same, and so are `1%` and `1 %`; single
    letters keep their case."""
    words = name.strip().replace(" %", "%")
    return words if len(words) == 1 else re.sub(r"[\s_-]+", "_", words.lower())


BY_KEY: Mapping[str, Term] = {
    key_of(name): term for terms in GLOSSARY.values() for term in terms for name in term.names
}
"""A name's key -> its term."""
