"""Preset: a named plan with its source and when to take it."""

from dataclasses import dataclass

from rlcorr_cli.plans.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A named plan.  aliases also name it; when says in one line what it is for; source where it comes from.

    note: what a user should know about the peer's arithmetic, if it departs from its own documents.
    """

    plan: Plan
    aliases: tuple[str, ...] = ()
    when: str
    source: str
    note: str = ""

    @property
    def notes(self) -> tuple[str, ...]:
        """The note as reports show it."""
        return (f"{self.name}: {self.note}",) if self.note else ()

    @property
    def name(self) -> str:
        """The preset's name in reports."""
        return self.plan.name
