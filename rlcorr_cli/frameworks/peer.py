"""What a peer is: a framework whose config is read as a plan; metrics stay rlcorr's own (else see `profile.py`)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rlcorr_cli.errors import UsageError, nearest, shortened
from rlcorr_cli.frameworks.config import Config, contradiction
from rlcorr_cli.plans.plan import Plan

CLOSE = 0.85
"""How like one of ours a key among others' must be to count as a misspelling of it."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """One framework's config.

    keys: those that are read.  blocks: where they stand, beside the top level.  own: blocks that hold nothing else, so
    that an unknown key there is an error; elsewhere only one that looks like a misspelling is.  common: keys that, at
    the top level, do not tell whose config it is.  others: keys that look like one of `keys` and mean something else.
    notes: of the options read and their plan, what a user should know about the framework.
    """

    name: str
    keys: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    read: Callable[[Config], Plan]
    own: tuple[tuple[str, ...], ...] = ()
    common: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    notes: Callable[[Config, Plan], tuple[str, ...]] = lambda options, plan: ()

    def knows(self, data: Mapping[str, Any]) -> bool:
        """Whether a config has any of the framework's keys at its place."""
        if any(key in self.keys and key not in self.common for key in data):
            return True
        own = any(_is_there(data, path) for path in self.own)
        return own or any(key in self.keys for path in self.blocks for key in _at(data, path))

    def options(self, data: Mapping[str, Any]) -> Config:
        """The peer's options in a config; a key that is not the peer's, or contradicts another, is a UsageError."""
        options: dict[str, Any] = {}
        for path in (*self.own, *self.blocks, ()):
            block = _at(data, path)
            self._check(block, path)
            # At the top level such a key belongs to something else, once the peer's own block has been found.
            left = self.common if path == () and options else ()
            for key in (key for key in self.keys if key in block and key not in left):
                if options.get(key, block[key]) != block[key]:
                    first, second = (f"{key}: {shortened(value)}" for value in (options[key], block[key]))
                    raise contradiction(first, second, "Keep it in one place.")
                options[key] = block[key]
        return options

    def _check(self, block: Mapping[str, Any], path: tuple[str, ...]) -> None:
        for key in map(str, block):
            places = (*self.own, *self.blocks)
            if key in (*self.keys, *self.others) or (
                path == () and any(key == at[0] or _under(key, at) for at in places)
            ):
                continue
            if path in self.own or get_close_matches(key, self.keys, 1, CLOSE):
                where = f" under {'.'.join(path)}" if path else ""
                raise UsageError(f"{self.name} has no option '{key}'{where}.", f"Nearest: {nearest(key, self.keys)}.")


def _is_there(data: Mapping[str, Any], path: tuple[str, ...]) -> bool:
    """Whether a config has something, if only null, at a path.  What is not a block of options is a UsageError."""
    inner: Any = data
    for key in path:
        if not isinstance(inner, Mapping) or key not in inner:
            return bool(_at(data, path))
        inner = inner[key]
    if inner is not None and not isinstance(inner, Mapping):
        raise UsageError(
            f"{'.'.join(path)} must be a block of options, got {shortened(inner)}.", "Leave it out for none."
        )
    return True


def _at(data: Mapping[str, Any], path: tuple[str, ...]) -> Mapping[str, Any]:
    """The block at a path; empty where there is none.  'a.b.c' as one key is the same place."""
    inner: Any = data
    for key in path:
        inner = inner.get(key) if isinstance(inner, Mapping) else None
    dotted = {str(k).removeprefix(".".join(path) + "."): v for k, v in data.items() if _under(str(k), path)}
    return {**dotted, **inner} if isinstance(inner, Mapping) else dotted


def _under(key: str, path: tuple[str, ...]) -> bool:
    return bool(path) and key.startswith(".".join(path) + ".")
