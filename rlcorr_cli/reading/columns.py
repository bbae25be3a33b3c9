"""Which column of a dump plays which part.

The names are in `reading/names.py`.  A mapping is a plain dict, canonical name -> the dump's column.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import field, replace

from rlcorr_cli.errors import (
    LONGEST_NAME,
    DataError,
    NoCurrentPolicy,
    NoRolloutColumn,
    NoTrainedColumn,
    UsageError,
    nearest,
    shortened,
)
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts import nested
from rlcorr_cli.plans.plan import Mode
from rlcorr_cli.reading.names import ALIASES, AMBIGUOUS, PROMPT_IDS
from rlcorr_cli.reading.request import PlanColumns

# A framework multiplies these by a second mask, which is not read here.
SECOND_MASKS: dict[str, str] = {"token_loss_mask": "sample_loss_mask", "completion_mask": "tool_mask"}
SHOWN = 15


class Lag(str):
    """What stands for the key `lag` of a dump without a column of it: the step less the version of the weights that
    sampled, as 'step - policy_version'.  of: the two columns."""

    of: tuple[str, str]

    def __new__(cls, step: str, version: str) -> "Lag":
        lag = super().__new__(cls, f"{step} - {version}")
        lag.of = step, version
        return lag

    def __reduce__(self) -> "tuple[type[Lag], tuple[str, str]]":
        return Lag, self.of


def read_for(keys: Iterable[str]) -> list[str]:
    """The columns that are read for group keys: each key's own, of a Lag both of its columns."""
    return [column for key in keys for column in (key.of if isinstance(key, Lag) else (key,))]


@frozen(kw_only=True)
class Roles:
    """The columns that are read, by what they are for.

    old, current: the policies before and after updates, at least one of them where policies are compared.
    batch: of training batches; None where all rows are one.  group_keys: what else rows are grouped by, in the order
    asked for.  ids: what tells rows apart, sample_id first.  drawn_by: those of them by which the bootstrap knows rows.
    cluster: the column whose rows of one value are drawn together; draws_rows: whether, without such a column, every
    row is drawn by itself even where a rollout is there twice.
    levels: (name, column) of what a gap may sit in.  of_tokens: what a diagnosis looks at of each token, a key of
    `schema.OF_TOKENS` -> its column.
    row_advantage: of advantages that are averaged over each row, and need not be sound.  rollouts: what tells which
    rollout a row is a sample of, its id first, then the step.  prompt: of the token ids of prompts.
    """

    rollout: str
    old: str | None = None
    current: str | None = None
    mask: str | None = None
    reward: str | None = None
    advantages: str | None = None
    batch: str | None = None
    group_keys: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    drawn_by: tuple[str, ...] = ()
    levels: tuple[tuple[str, str], ...] = ()
    of_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    row_advantage: str | None = None
    cluster: str | None = None
    draws_rows: bool = False
    rollouts: tuple[str, ...] = ()
    prompt: str | None = None

    @classmethod
    def of(cls, columns: Mapping[str, str]) -> "Roles":
        """A resolved mapping, canonical name -> column, read by role; nothing else is read yet."""
        return cls(
            rollout=columns["rollout_log_probs"],
            old=columns.get("old_log_probs"),
            current=columns.get("current_log_probs"),
            mask=columns.get("response_mask"),
            reward=columns.get("reward"),
            advantages=columns.get("advantages"),
            prompt=columns.get(PROMPT_IDS),
        )

    @property
    def trained(self) -> str | None:
        """The column of a trained policy, the one before updates if there are two; None where only the rollout's is."""
        return self.old or self.current

    @property
    def train(self) -> str:
        """The column that is compared with rollout's."""
        assert self.trained is not None, "a dump has at least one trained policy"
        return self.trained

    @property
    def log_probs(self) -> list[str]:
        """The two or three policies' columns."""
        return [column for column in (self.rollout, self.old, self.current) if column]

    @property
    def needed(self) -> list[str]:
        """Every column to read, each once."""
        of_tokens = (*self.log_probs, self.mask, self.reward, self.advantages, *self.of_tokens.values())
        of_rows = (self.row_advantage, self.batch, *read_for(self.group_keys), *self.ids, self.cluster, *self.rollouts)
        levels = (column for _, column in self.levels)
        return list(dict.fromkeys(column for column in (*of_tokens, *of_rows, self.prompt, *levels) if column))

    def without(self, names: Collection[str]) -> "Roles":
        """What is read where some columns of rows are not in a file: a lag as its other column."""

        def others(columns: Iterable[str]) -> tuple[str, ...]:
            return tuple(column for column in columns if column not in names)

        return replace(
            self,
            batch=None if self.batch in names else self.batch,
            group_keys=others(read_for(self.group_keys)),
            ids=others(self.ids),
            cluster=None if self.cluster in names else self.cluster,
            rollouts=others(self.rollouts),
            levels=tuple((name, column) for name, column in self.levels if column not in names),
        )


def resolve(
    available: Sequence[str],
    overrides: Mapping[str, str],
    plan_columns: PlanColumns,
    lists: Collection[str] | None = None,
) -> dict[str, str]:
    """Canonical -> column for the two policies, then current_log_probs, response_mask and reward where there are any,
    what the plan needs, and what is wanted where there is any.

    The training side is old_log_probs; in bypass mode, and nowhere else, it is current_log_probs.  A decoupled dump
    that has only a current policy lends it as the old one, and then has no current one; not where policies are not
    compared.  lists: the columns of lists of numbers, which alone an error names; None of all.
    """
    mode, needs, compares = plan_columns.mode, plan_columns.needed, plan_columns.compares
    check_names(overrides)
    for canonical, column in overrides.items():
        if column not in available:
            near = nearest(column, available)
            raise UsageError(f"⟦map {canonical}={column}⟧: there is no column '{column}'.", f"Similar columns: {near}.")
    chosen: dict[str, str | None] = {"rollout_log_probs": _only_column("rollout_log_probs", available, overrides)}
    current = _only_column("current_log_probs", available, overrides)
    if mode == "bypass":
        chosen["current_log_probs"] = current
    else:
        old = _only_column("old_log_probs", available, overrides)
        lent = current if compares and not old else None
        chosen["old_log_probs"] = old or lent
        if (current and not lent) or "current_log_probs" in needs:
            chosen["current_log_probs"] = None if lent else current
    if "advantages" in needs:
        chosen["advantages"] = _only_column("advantages", available, overrides)
    for canonical, column in chosen.items():
        if column is None and (compares or canonical == "rollout_log_probs"):
            raise _missing(canonical, available, overrides, mode, lists=available if lists is None else lists)
    for canonical in ("response_mask", "reward", *plan_columns.optional):
        chosen[canonical] = _only_column(canonical, available, overrides)
    return {canonical: column for canonical, column in chosen.items() if column}


def candidates(name: str, available: Sequence[str], overrides: Mapping[str, str]) -> list[str]:
    """Columns that `name`, canonical or a column's own, may stand for: none, one, or several aliases."""
    if name in overrides:
        return [overrides[name]]
    free = [column for column in available if column not in overrides.values()]
    aliases = [alias for alias in ALIASES.get(name, ()) if alias in free]
    if name == "response_mask" and name in free and "loss_mask" in aliases:
        return [name, "loss_mask"]  # SkyRL: response_mask only marks padding there
    return [name] if name in available and (name in free or name not in ALIASES) else aliases


def key_column(name: str, available: Sequence[str], overrides: Mapping[str, str], purpose: str = "to group by") -> str:
    """The column a group key stands for.  purpose: what it is wanted for, as an error says."""
    if name in available and name not in ALIASES:
        return name
    column = _only_column(name, available, overrides)
    if column is None and name == "lag":
        message = f"There is no lag {purpose}: it is the step less the version of the weights that sampled."
        raise DataError(message, "Name the columns: ⟦map step=COLUMN⟧ ⟦map policy_version=COLUMN⟧.")
    if column is None:
        raise DataError(f"There is no column '{name}' {purpose}.", f"Similar columns: {nearest(name, available)}.")
    return column


def check_names(overrides: Mapping[str, str]) -> None:
    """Refuse overrides that are wrong whatever the dump holds."""
    taken: dict[str, str] = {}
    for canonical, column in overrides.items():
        meant = next((name for name, aliases in ALIASES.items() if canonical in aliases), None)
        if canonical not in ALIASES and column in ALIASES and meant != column:
            raise UsageError(
                f"⟦map {canonical}={column}⟧ is the wrong way round.", f"Write ⟦map {column}={canonical}⟧."
            )
        if canonical not in ALIASES:
            hint = f"Write ⟦map {meant}={column}⟧." if meant else f"Canonical names: {', '.join(ALIASES)}."
            hint = f"Leave it out: a column of either name is read as {meant}." if meant == column else hint
            raise UsageError(f"⟦map⟧: unknown name '{canonical}'.", hint)
        if column in taken:
            raise UsageError(
                f"⟦map⟧ gives '{column}' to both {taken[column]} and {canonical}.", "Map each column to one name."
            )
        taken[column] = canonical


def first_names(names: Iterable[str]) -> str:
    """Names as text, at most SHOWN of them."""
    names = list(names)
    return ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def _only_column(canonical: str, available: Sequence[str], overrides: Mapping[str, str]) -> str | None:
    columns = candidates(canonical, available, overrides)
    if len(columns) > 1:
        raise DataError(
            f"{' and '.join(columns)} could each be {canonical}.", f"Say which: ⟦map {canonical}={columns[-1]}⟧."
        )
    return columns[0] if columns else None


def _missing(
    canonical: str, available: Sequence[str], overrides: Mapping[str, str], mode: Mode, *, lists: Collection[str]
) -> DataError:
    message = f"There is no column for {canonical}; the columns are {first_names(available)}."
    if mode == "bypass" and canonical == "current_log_probs" and candidates("old_log_probs", available, {}):
        return NoCurrentPolicy(message, "⟦mode decoupled⟧ compares old_log_probs, which the dump has.")
    if mode == "decoupled" and canonical == "current_log_probs" and _only_column(canonical, available, overrides):
        return DataError(
            "The plan compares the current policy with another, and the dump has but one trained policy.",
            "⟦mode bypass⟧ takes the rollout policy for the old one.",
        )
    if mode == "decoupled" and canonical == "current_log_probs":
        return DataError(
            f"{message} The plan compares the current policy with another.",
            "Write it into the dump after an update, or take a plan that compares the old policy with the rollout's.",
        )
    if canonical == "advantages":
        message += " A plan looks at their sign, an objective at their size."
    guesses = [name for name in AMBIGUOUS.get(canonical, ()) if name in lists and name not in overrides.values()]
    if guesses:
        return DataError(message, f"If it is meant, try ⟦map {canonical}={guesses[0]}⟧.")
    near = [column for column in _near(canonical, available, overrides) if column in lists]
    rest = (
        f"nearest: {', '.join(near)}" if near else f"if none holds it, {_UNWRITTEN.get(canonical, 'it is not there')}"
    )
    error = {"rollout_log_probs": NoRolloutColumn, "advantages": DataError}.get(canonical, NoTrainedColumn)
    return (DataError if near else error)(message, f"Name it with ⟦map {canonical}=COLUMN⟧; {rest}.")


_UNWRITTEN = {
    "rollout_log_probs": "have the engine that samples return its log-probs",
    "old_log_probs": "the trainer did not write its log-probs",
    "current_log_probs": "the trainer did not write its log-probs after updates",
    "advantages": "the trainer did not write them",
}
"""What is wrong with a dump in which no column is like one that it needs, or what to do."""


def _near(canonical: str, available: Sequence[str], overrides: Mapping[str, str]) -> list[str]:
    """At most three columns named much like this one or its aliases; none that plays another part, as the rollout's
    own log-probs do, nor of what is no policy of the tokens that were sampled."""
    others = {column for name in ALIASES if name != canonical for column in candidates(name, available, overrides)}
    free = [column for column in available if column not in others and not nested.OTHERS & nested.words_of(column)]
    free = [column for column in free if len(column) <= LONGEST_NAME]
    names = (canonical, *ALIASES[canonical])
    from difflib import get_close_matches

    close = (column for name in names for column in get_close_matches(name, free, cutoff=0.7))
    return [shortened(column, quotes=False) for column in dict.fromkeys(close)][:3]
