"""Options that several commands take, declared once as groups; `flat` spreads them into a command's own signature.

A command names a group as a parameter, `plan: PlanOptions`, and receives one object; typer sees single options.
"""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, get_type_hints

from rlcorr_cli.cli import options as o
from rlcorr_cli.errors import UsageError

if TYPE_CHECKING:
    from rlcorr_cli.cli.plans import Chosen
    from rlcorr_cli.pipeline.analysis import Reading
    from rlcorr_cli.pipeline.scan import Computing


@dataclass(frozen=True)
class ReadingOptions:
    """How a dump is read."""

    format: o.FormatName = "auto"
    map: o.Map = None
    batch_by: o.BatchBy = None
    limit: o.Limit = None

    def reading(self, dumps: list[str], group_by: list[str] | None = None) -> "Reading":
        """The dump to read."""
        from rlcorr_cli.pipeline.analysis import Reading

        mapping = self._mapping()
        return Reading(tuple(dumps), self.format, mapping, tuple(group_by or ()), self.batch_by, self.limit)

    def _mapping(self) -> dict[str, str]:
        """['canonical=column', ...] -> dict."""
        columns: dict[str, str] = {}
        for pair in self.map or []:
            canonical, equals, column = pair.partition("=")
            if not equals or not canonical or not column:
                raise UsageError(f"Cannot read --map {pair}.", "Write --map CANONICAL=COLUMN: old_log_probs=log_probs.")
            if canonical in columns:
                raise UsageError(f"--map names {canonical} twice.", "Map each canonical name once.")
            columns[canonical] = column
        return columns


@dataclass(frozen=True)
class PlanOptions:
    """Which correction, and the single knobs turned on it."""

    mode: o.ModeName = None
    preset: o.PresetName = None
    plan: o.PlanPath = None
    is_scope: o.WeightScopeName = None
    is_high: o.IsHigh = None
    is_low: o.IsLow = None
    is_outside: o.IsOutside = None
    normalize: o.Normalize = None
    rs: o.Rs = None
    veto: o.Veto = None

    @property
    def turns_knobs(self) -> bool:
        """Whether any knob but the mode is turned."""
        knobs = (self.is_scope, self.is_high, self.is_low, self.is_outside, self.normalize, self.veto)
        return bool(self.rs) or any(knob is not None for knob in knobs)

    def chosen(self, profile: str = "canonical") -> "Chosen":
        """The resolved plan."""
        from rlcorr_cli.cli.plans import resolve

        return resolve(self, profile)


@dataclass(frozen=True)
class ComputingOptions:
    """Where and in what portions to compute."""

    device: o.Device = "auto"
    batch_tokens: o.BatchTokens = None
    threads: o.Threads = None

    def computing(self, sparing: bool = False) -> "Computing":
        """For a process that does nothing else; sparing: see `prefer_jemalloc`."""
        from rlcorr_cli.io.parquet import prefer_jemalloc
        from rlcorr_cli.pipeline.scan import computing

        prefer_jemalloc(sparing)
        return computing(self.device, self.threads, self.batch_tokens)


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer is to see it: groups among its parameters replaced by their options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]

    def run(**given: Any) -> None:
        made = {name: _taken(group, given) for name, group in groups.items()}
        command(**made, **given)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    run.__signature__ = Signature([one.replace(kind=Parameter.KEYWORD_ONLY) for one in parameters])  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _taken(group: Any, given: dict[str, Any]) -> Any:
    """A group made of its options, which are taken out of those given."""
    return group(**{one.name: given.pop(one.name) for one in fields(group)})


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            one.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if one.default is MISSING else one.default,
            annotation=hints[one.name],
        )
        for one in fields(group)
    ]
