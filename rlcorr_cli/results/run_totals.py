"""RunTotals: a run's totals with all else that its report says; runs add, and `build.py` makes the report of a sum.

`analyze` makes its report from them, too, so that a sum of saved parts says what one run over all the data says.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

from rlcorr_cli.frozen import frozen
from rlcorr_cli.metrics.diagnostics import DiagnosticSettings
from rlcorr_cli.plans.objective import Objective
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.reading.names import STEPS
from rlcorr_cli.results.saved_runs import MeasuredRun
from rlcorr_cli.totals.replicates import MOST_CLUSTERS, MOST_GROUP_CLUSTERS, GroupReplicates, regrouped
from rlcorr_cli.totals.tail import GROUP_SIZE
from rlcorr_cli.totals.totals import Totals
from rlcorr_cli.totals.view import diagnostics_block


@frozen(kw_only=True)
class RunTotals(MeasuredRun):
    """What one run of `analyze` measured, or several together.

    profile: its name.  search_notes: those of the notes that say what of the dump is not read.  drawn_by: the canonical
    columns that the bootstrap knows rows by; none where it goes by what rollout says of them.
    """

    command: ClassVar[str] = "analyze"
    plan: Plan
    profile: str
    search_notes: tuple[str, ...] = ()
    drawn_by: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        totals = self.measured.totals
        if totals is not None and any(len(key) != 1 + len(self.provenance.groups) for key in totals.keys):
            raise ValueError("a group has another key than its columns")

    def check_unpacked(self) -> None:
        """A ValueError or LookupError of groups or replicates that do not add to each other, and of settings or inputs
        without what every run has."""
        totals = self.measured.totals
        if totals is not None:
            self._check_names(totals)
            if any(tail and tail.size != GROUP_SIZE for tails in totals.tails.values() for tail in tails or ()):
                raise ValueError("a tail has another size")
        of_groups = (self.measured.group_replicates or {}).values()
        for most, drawn in ((MOST_CLUSTERS, (self.measured.replicates,)), (MOST_GROUP_CLUSTERS, of_groups)):
            if any(replicates.clusters.most != most for by_mode in drawn for replicates in by_mode.values()):
                raise ValueError("clusters are counted up to another number")
        _ = self.setting_notes, self.objective, self.provenance.settings["cluster_by"]
        if not self.inputs or any(len(source.columns) < 2 for source in self.inputs):
            raise ValueError("there is no input with the columns of two policies")

    def _check_names(self, totals: Totals) -> None:
        names, places = {merge: set(table.names) for merge, table in totals.tables.items()}, self.resampled
        sums, logs, _ = places.get(self.plan.mode, ((), (), 0))
        block = diagnostics_block(self.plan.mode)
        for merge, of_replicates in (("sum", sums), ("log_sum_exp", logs)):
            if not {f"{block}.{name}" for name in of_replicates} <= names[merge]:
                raise ValueError("replicates are of other totals than there are")
        needed = f"{block}.tokens"
        if needed not in names["sum"]:
            raise ValueError("there are no totals of the plan")

    @property
    def resampled(self) -> dict[str, tuple[tuple[str, ...], tuple[str, ...], int]]:
        """The names of the replicates of each mode; a ValueError where those of two groups differ."""
        told: dict[str, tuple[tuple[str, ...], tuple[str, ...], int]] = {}
        for by_mode in (self.measured.replicates, *(self.measured.group_replicates or {}).values()):
            for mode, replicates in by_mode.items():
                if told.setdefault(mode, replicates.names) != replicates.names:
                    raise ValueError("replicates hold other totals than each other")
        return told

    @property
    def n_budgets(self) -> int:
        """How many bounds the data set."""
        return len(self.plan.budgets)

    @classmethod
    def added(cls, runs: Iterable[Self]) -> Self:
        """The sum of runs, taken one at a time; a ValueError of those of two releases."""
        resampled: dict[str, Any] = {}
        search_notes: dict[str, None] = {}

        def of_one_release() -> Iterator[Self]:
            for run in runs:
                if any(resampled.setdefault(mode, names) != names for mode, names in run.resampled.items()):
                    raise ValueError("replicates hold other totals than each other")
                search_notes.update(dict.fromkeys(run.search_notes))
                yield run

        return replace(super().added(of_one_release()), search_notes=tuple(search_notes))

    @property
    def totals(self) -> Totals:
        """Those of a run that has some."""
        assert self.measured.totals is not None
        return self.measured.totals

    def grouped_by(self, columns: Sequence[str]) -> "RunTotals":
        """The same by some of the columns that it is grouped by; by none of them, of the whole."""
        if tuple(columns) == self.provenance.groups:
            return self
        places, asked = self.provenance.places_of(columns), self.provenance.asked_groups
        totals = self.totals.regrouped(lambda key: (key[0], *(key[1 + place] for place in places)))
        replicates: GroupReplicates = {}
        if set(columns) <= set(asked):
            replicates = regrouped(self.measured.group_replicates, [asked.index(name) for name in columns])
        measured = replace(
            self.measured,
            totals=totals,
            group_replicates=replicates,
            step_clusters=self.measured.step_clusters if any(name in STEPS for name in columns) else {},
            provenance=replace(
                self.provenance,
                groups=tuple(columns),
                adds_step=self.provenance.adds_step and tuple(columns[-1:]) == self.provenance.groups[-1:],
            ),
        )
        return replace(self, measured=measured)

    @property
    def pooled(self) -> "RunTotals":
        """The same with all steps taken together, where they were told apart without being asked for."""
        measured = self.measured.pooled
        return replace(
            self, measured=replace(measured, provenance=replace(self.provenance.without_step, is_pooled=False))
        )

    @property
    def objective(self) -> Objective | None:
        """The objective whose sums the totals hold, if any."""
        prefix = "objective."
        settings = {name: value for name, value in self.provenance.settings.items() if name.startswith(prefix)}
        options: dict[str, Any] = {name.removeprefix(prefix): value for name, value in settings.items()}
        return Objective(**options) if options else None

    @property
    def setting_notes(self) -> list[str]:
        """What was set away from its default and no other part of a report says."""
        default, settings, seed = DiagnosticSettings(), self.provenance.settings, self.provenance.seed
        extreme_ratio, clips = settings["extreme_ratio"], (settings["clip_low"], settings["clip_high"])
        settings_set = (
            (extreme_ratio != default.extreme_ratio, f"extreme ratio {extreme_ratio:g}"),
            (clips != (default.clip_low, default.clip_high), f"PPO clips {clips[0]:g} and {clips[1]:g}"),
            (bool(seed), f"bootstrap seed {seed}"),
        )
        chosen = ", ".join(words for differs, words in settings_set if differs)
        return [f"Set by option: {chosen}."] if chosen else []
