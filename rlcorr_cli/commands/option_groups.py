"""Options that several commands take, declared once as groups; `flat` spreads them into a command's own signature.

A command names a group as a parameter, `plan: PlanOptions`, and receives one object; typer sees single options.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from rlcorr_cli.commands import computing_options as w
from rlcorr_cli.commands import options as o
from rlcorr_cli.errors import UsageError
from rlcorr_cli.places import scheme
from rlcorr_cli.reading.request import EngineName

if TYPE_CHECKING:
    from rlcorr_cli.frameworks.chosen import ChosenPlan
    from rlcorr_cli.reading.bad_rows import BadRowPolicy


class ReadingRows(TypedDict):
    """Arguments of the API that say how a dump is read where nothing looks at its batches."""

    format: str
    columns: dict[str, str]
    limit: int | None
    bad_rows: "BadRowPolicy"


class Reading(ReadingRows):
    """Arguments of the API that say how a dump is read."""

    batch_by: str | None


class Computing(TypedDict):
    """Arguments of the API that say where and in what portions to compute."""

    device: str
    batch_tokens: int | None
    engine: EngineName
    workers: int | None
    ray_address: str | None
    threads: int | None


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How a dump is read."""

    format: o.FormatName = "auto"
    map: o.Map = None
    batch_by: o.BatchBy = None
    limit: o.Limit = None
    on_bad_row: o.OnBadRow = "error"
    quarantine: o.Quarantine = None
    max_bad_fraction: o.MaxBadFraction = None
    nonfinite: o.Nonfinite = "error"

    def arguments(self) -> Reading:
        """As the API takes them."""
        return {**self._of_rows(), "batch_by": self.batch_by}

    def arguments_of_rows(self, what: str) -> ReadingRows:
        """The same for what looks at no batches: an error where they are named."""
        if self.batch_by is not None:
            raise UsageError(f"--batch-by changes nothing here: {what} looks at no batches.", "Leave it out.")
        return self._of_rows()

    def _of_rows(self) -> ReadingRows:
        return {
            "format": self.format,
            "columns": mapping(self.map),
            "limit": self.limit,
            "bad_rows": self._bad_rows(),
        }

    def _bad_rows(self) -> "BadRowPolicy":
        """What to do about bad rows; a place for them asks for their quarantine."""
        from rlcorr_cli.reading.bad_rows import BadRowPolicy

        path = None if self.quarantine is None else Path(self.quarantine)
        asks = path is not None and self.on_bad_row == "error"
        return BadRowPolicy("quarantine" if asks else self.on_bad_row, path, self.max_bad_fraction, self.nonfinite)


def mapping(pairs: Sequence[str] | None) -> dict[str, str]:
    """['canonical=column', ...] -> dict."""
    columns: dict[str, str] = {}
    for pair in pairs or []:
        canonical, equals, column = pair.partition("=")
        if not equals or not canonical or not column:
            raise UsageError(f"Cannot read --map {pair}.", "Write --map CANONICAL=COLUMN: old_log_probs=log_probs.")
        if canonical in columns:
            raise UsageError(f"--map names {canonical} twice.", "Map each canonical name once.")
        columns[canonical] = column
    return columns


def plan_file(typed: str) -> str | Path:
    """What --plan names, which is never a preset, whatever it is called."""
    return typed if scheme(typed) else Path(typed)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Which correction, and the single knobs turned on it."""

    mode: o.ModeName = None
    preset: o.PresetName = None
    plan: o.PlanPath = None
    is_scope: o.WeightScopeName = None
    is_high: o.IsHigh = None
    is_low: o.IsLow = None
    is_outside: o.IsOutside = None
    normalize: o.NormalizeBy = None
    rs: o.Rs = None
    veto: o.Veto = None

    def chosen(self, profile: str = "canonical") -> "ChosenPlan | None":
        """The plan; None where no option asks for one."""
        if self == PlanOptions() and profile == "canonical":
            return None
        from rlcorr_cli.commands.choosing import choose_plan

        if self.preset and self.plan:
            raise UsageError(
                "--preset and --plan both name a plan.", "Keep one, and change it with --is, --rs or --veto."
            )
        return choose_plan(
            plan_file(self.plan) if self.plan else self.preset,
            profile=profile,
            mode=self.mode,
            is_scope=self.is_scope,
            is_high=self.is_high,
            is_low=self.is_low,
            is_outside=self.is_outside,
            normalize=self.normalize,
            rs=self.rs or (),
            veto=self.veto,
        )


@dataclass(frozen=True, kw_only=True)
class ComputingOptions:
    """Where and in what portions to compute."""

    device: w.Device = "auto"
    batch_tokens: w.BatchTokens = None
    engine: w.Engine = "auto"
    workers: w.Workers = None
    ray_address: w.RayAddress = None
    threads: w.Threads = None

    def arguments(self, *, return_memory: bool = False) -> Computing:
        """As the API takes them, for a process that does nothing else; return_memory: see `use_jemalloc`."""
        from rlcorr_cli.reading.parquet import use_jemalloc

        use_jemalloc(return_memory)
        return {
            "device": self.device,
            "batch_tokens": self.batch_tokens,
            "engine": self.engine,
            "workers": self.workers,
            "ray_address": self.ray_address,
            "threads": self.threads,
        }


def flat(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """The command as typer is to see it: groups among its parameters replaced by their options."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        parameters += _options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])]

    def run(**arguments: Any) -> int | None:
        _refuse_empty(arguments, parameters)
        made = {name: _taken(group, arguments) for name, group in groups.items()}
        return command(**made, **arguments)

    run.__doc__, run.__name__ = command.__doc__, command.__name__
    options = [parameter.replace(kind=Parameter.KEYWORD_ONLY) for parameter in parameters]
    run.__signature__ = Signature(options)  # pyrefly: ignore[missing-attribute]  # what inspect.signature looks for
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _refuse_empty(arguments: Mapping[str, Any], parameters: Sequence[Parameter]) -> None:
    """An empty text is a shell variable that was not set: taken for no text, it would change what is done unseen."""
    for parameter in parameters:
        value = arguments[parameter.name]
        if value == "" or (isinstance(value, list) and "" in value):
            (info,) = (data for data in parameter.annotation.__metadata__ if hasattr(data, "param_decls"))
            # typer takes the first of an option's names for its default until it sees the signature.
            names = [name for name in (info.default, *(info.param_decls or ())) if isinstance(name, str)]
            named = names[-1] if names else f"The name of the {'dump' if parameter.name == 'dumps' else parameter.name}"
            raise UsageError(f"{named} is empty: is a variable unset?", "Give it a value, or leave it out.")


def _taken(group: Any, arguments: dict[str, Any]) -> Any:
    """A group made of its options, which are taken out of those arguments."""
    return group(**{option.name: arguments.pop(option.name) for option in fields(group)})


def _options(group: Any) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            option.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if option.default is MISSING else option.default,
            annotation=hints[option.name],
        )
        for option in fields(group)
    ]
