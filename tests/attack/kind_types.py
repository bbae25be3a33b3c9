"""Values of every type, in every role, container and command: columns that a user may have."""

from collections.abc import Sequence
from zlib import crc32

from case import DATA, FAILS, OK, USAGE, Case, Cases, SetUp, written
from commands import Form, forms
from dumps_of import COMPRESSED, PER_TOKEN, ROLES, SUFFIXES, holdable, of_kind, of_type
from values import KINDS, LISTS, TYPES, N

PLACES = ("in all rows", "in the first row", "in the last row")
ONE_IN, PICTURES_ONE_IN = 8, 48
"""Of all combinations, which are 200,000, those are tried that a lot over their names draws; pictures take long."""
CARRIES = ("filter", "convert")
"""Commands that write what only passes through, and so refuse what is no value of its type."""
CURRENT = ("--mode", "bypass")


def cases() -> Cases:
    """All of them."""
    for role in ROLES:
        for form in forms():
            yield from of_arrow(role, form)
            yield from of_json(role, form)


def of_arrow(role: str, form: Form) -> Cases:
    """Every type of Arrow, alone and in lists of a row's tokens; which of the suffixes is drawn by lot."""
    suffixes = [suffix for suffix in SUFFIXES if suffix not in COMPRESSED]
    for type in TYPES:
        for held in ("", *LISTS) if role in PER_TOKEN else ("",):
            if not _drawn(form, role, type, held):
                continue
            suffix = _lot(suffixes, held, form.name, type, role)
            if holdable(suffix, type, held):
                yield _case(role, form, suffix, f"{held} {type}".strip(), of_type_later(suffix, role, type, held))


def of_json(role: str, form: Form) -> Cases:
    """Every kind of JSON; which of the packings is drawn by lot, for it changes nothing of a value."""
    packings = tuple(COMPRESSED)
    for kind in KINDS:
        for held in (*PLACES, "in a list") if role in PER_TOKEN else PLACES:
            if _drawn(form, role, kind, held):
                suffix = _lot(packings, held, form.name, kind, role)
                data = of_kind_later(suffix, role, kind, held)
                yield _case(role, form, suffix, f"{kind} {held}", data)


def _lot(suffixes: Sequence[str], *words: str) -> str:
    return suffixes[crc32("".join(words).encode()) % len(suffixes)]


def _drawn(form: Form, *words: str) -> bool:
    lot = crc32("/".join((*words, form.name)).encode())
    if lot % ONE_IN:  # a divisor of the other
        return False
    pictures = form.args[0] == "plot" or form.name.endswith((".html", ".md"))
    return not pictures or lot % PICTURES_ONE_IN == 0


def of_type_later(suffix: str, role: str, type: str, held: str) -> SetUp:
    return lambda here: written(f"d{suffix}", of_type(suffix, role, type, held))(here)


def of_kind_later(suffix: str, role: str, kind: str, held: str) -> SetUp:
    return lambda here: written(f"d{suffix}", of_kind(suffix, role, kind, held))(here)


def _case(role: str, form: Form, suffix: str, value: str, set_up) -> Case:
    dump = f"d{suffix}"
    return Case(
        kind="types",
        factors=(f"{role}: {value}", suffix, form.name),
        args=form.on(dump, *more(role, form)),
        set_up=set_up,
        outputs=form.outputs,
        statuses=ends(role, form, suffix),
        rows=N,
        dump=dump,
    )


def more(role: str, form: Form) -> tuple[str, ...]:
    """Options that have a column of this role looked at."""
    if role == "current_log_probs":
        return CURRENT
    groups = form.args[0] in ("analyze", "check", "plot") and "--group-by" not in form.args
    if role in ("step", "policy_version", "group key"):
        return ("--group-by", ROLES[role]) if groups else ()
    return ()


def ends(role: str, form: Form, suffix: str) -> frozenset[int]:
    """A column that is only passed through changes nothing, but that JSON has no place for some types."""
    plain = {OK, FAILS} if form.args[0] in ("check", "watch") else {OK}
    if role == "passenger" and suffix not in COMPRESSED and form.args[0] not in CARRIES and "--row" not in form.args:
        return frozenset(plain)
    return frozenset(plain | {USAGE, DATA})
