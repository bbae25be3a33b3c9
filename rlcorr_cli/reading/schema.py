"""One mapping for all files of a dump: what they must share, and what is left out where they do not.

Each file is resolved by itself and held against the first (`resolve_schema`).  Where rows of several files are written
to one Parquet file, `joined_schema` tells which columns that has, or why it cannot be.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa

from rlcorr_cli.errors import DataError, UsageError, naming, nearest
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import shown
from rlcorr_cli.reading import arrow_values as types
from rlcorr_cli.reading.arrow_values import is_list
from rlcorr_cli.reading.columns import SECOND_MASKS, Lag, Roles, candidates, key_column, resolve
from rlcorr_cli.reading.names import (
    ALIASES,
    KEPT_SETS,
    LEVELS,
    NAMED,
    NO_CLUSTERS,
    PROMPT_IDS,
    PROMPT_TEXTS,
    PROMPTS,
    TOKENS,
)
from rlcorr_cli.reading.request import PlanColumns, ReadRequest
from rlcorr_cli.reading.values import BRANCH, DRAW, SPLIT

FITS: dict[str, tuple[Callable[[pa.DataType], bool], str]] = {
    "response_mask": (types.holds_mask, types.MASK),
    "reward": (types.holds_reward, types.REWARD),
    "advantages": (types.holds_advantages, types.ADVANTAGES),
    "rollout_ids": (types.holds_key, types.KEY),
    PROMPT_IDS: (types.holds_token_ids, "a list of token ids per row"),
}
MARKS = ("step", "policy_version", "policy_version_lag")
"""Columns that pictures group rows by unasked, where there are such."""


@frozen
class TokenColumn:
    """What a diagnosis looks at of each token.  names: of its columns, the first that all files have; fits: of what
    type.  beside: keys of OF_TOKENS without which it tells nothing.  canonical: what --map calls it; '' of no name.
    """

    names: tuple[str, ...]
    fits: Callable[[pa.DataType], bool]
    beside: tuple[str, ...] = ()
    canonical: str = ""


PREFILL, KEPT, HEADS = "prefill_log_probs", ("kept_sets",), ("rollout_head", "old_head")
OF_TOKENS: dict[str, TokenColumn] = {
    "token_ids": TokenColumn(TOKENS, types.holds_token_ids, canonical="response_token_ids"),
    "versions": TokenColumn(("policy_versions", "versions"), types.holds_token_ids),
    "prefill": TokenColumn((PREFILL, *ALIASES[PREFILL]), types.holds_log_probs, canonical=PREFILL),
    "kept_sets": TokenColumn(KEPT_SETS, types.holds_kept_sets),
    "kept_ids": TokenColumn(("rollout_sampling_mask_ids",), types.holds_kept_parts, KEPT),
    "rollout_kept": TokenColumn(
        ("rollout_kept_log_probs", "rollout_sampling_mask_log_probs"), types.holds_kept_parts, KEPT
    ),
    "old_kept": TokenColumn(("old_kept_log_probs", "train_kept_log_probs"), types.holds_kept_parts, KEPT),
    "rollout_head": TokenColumn(("rollout_topk_log_probs",), types.holds_heads, HEADS),
    "old_head": TokenColumn(("old_topk_log_probs", "train_topk_log_probs"), types.holds_heads, HEADS),
    "rollout_head_ids": TokenColumn(("rollout_topk_token_ids", "rollout_topk_ids"), types.holds_heads, HEADS),
    "old_head_ids": TokenColumn(("old_topk_token_ids", "old_topk_ids", "train_topk_ids"), types.holds_heads, HEADS),
}
"""By the name that `token_context` reads it by: token ids, the weights that sampled, the rollout engine's log-probs in
one forward pass, kept sets, with the ids that KEPT_OFFSETS cuts and the log-probs of every kept token under both
policies, and heads: lists of the log-probs of each token's likeliest tokens under both, and their ids.  Without ids of
training's head, its log-probs are of the rollout's ids."""
ALTERNATIVES = (
    *chain(*LEVELS.values(), *(column.names for column in OF_TOKENS.values()), PROMPTS),
    *("advantages", *ALIASES["advantages"]),
)
"""Columns of which those are read that are the first of their kind that all files have."""
KNOWN = {*NAMED, *ALTERNATIVES, SPLIT, BRANCH}
"""Columns that anything here, or in a person's hands, makes use of."""
POLICY_WORDS = {"policy", "weight", "weights", "model", "param", "params", "actor", "checkpoint", "ckpt", "sampler"}
VERSION_WORDS = {"version", "ver", "step", "iteration", "iter", "update", "updates"}
"""A number whose name has a word of both, such as `actor_ver`, may be the policy's version under a name of its own."""
APART = "Read such files apart, or use ⟦map⟧ to name a column that all of them have."


@frozen(kw_only=True)
class ResolvedColumns:
    """columns: canonical or key name -> column, as reported.  roles: the same, as read.  step: the column of steps,
    where all files have the same one."""

    columns: dict[str, str]
    roles: Roles
    notes: tuple[str, ...]
    step: str | None


def resolve_schema(
    schemas: Mapping[str, pa.Schema], request: ReadRequest, plan_columns: PlanColumns
) -> ResolvedColumns:
    """Resolve each file, then hold them against the first.

    schemas: path -> all columns of that file, at least one file.  A file whose policies, mask or keys lie in other
    columns is a DataError that names it; a reward or current policy that not all files share is left out.
    """
    notes: list[str] = []
    left_out = ("current_log_probs", "reward") if plan_columns.mode == "decoupled" else ("reward",)
    optional = [name for name in (*left_out, *plan_columns.optional) if name not in plan_columns.needed]
    resolved = {
        path: _resolved(path, schema, request.columns, plan_columns=plan_columns, optional=optional, notes=notes)
        for path, schema in schemas.items()
    }
    columns = _shared(resolved, optional)
    notes += [
        f"{name} is not in every file under one name: not used."
        for name in sorted({name for theirs in resolved.values() for name in theirs} - set(columns))
    ]
    batch = plan_columns.batch
    if batch is not None and not plan_columns.batch_required:  # without a column that each file has, all is one batch
        of_files = [candidates(batch, schema.names, request.columns) for schema in schemas.values()]
        batch = batch if all(len(columns_of_file) == 1 for columns_of_file in of_files) else None
    names = request.group_by if batch is None else (batch, *request.group_by)
    keys = _shared_keys(schemas, names, request)
    ids = {_id_columns(schema, request) for schema in schemas.values()}
    notes += _unused_marks(schemas, request, n_ids=len(ids))
    notes += _like_versions(schemas, request) if plan_columns.levels else ()
    shared_ids = ids.pop() if len(ids) == 1 else ()
    # The bootstrap knows rows by the ids that are asked for, and none by a step alone.
    unasked = () if "step" in request.drawn_by else candidates("step", shared_ids[1:], request.columns)
    drawn_by = tuple(name for name in shared_ids if name not in unasked) if "sample_id" in request.drawn_by else ()
    roles = replace(
        Roles.of(columns),
        batch=None if batch is None else keys[batch],
        group_keys=tuple(keys[name] for name in request.group_by),
        ids=shared_ids,
        drawn_by=drawn_by,
        cluster=_cluster(schemas, request, plan_columns),
        draws_rows=request.cluster_by == NO_CLUSTERS,
        **_looked_into(schemas, request, plan_columns),
    )
    if plan_columns.only_row_advantage:
        roles = replace(roles, advantages=None, row_advantage=roles.advantages)
    columns = {**columns, **keys}
    available = {name for schema in schemas.values() for name in schema.names}
    steps = {_mark("step", schema, request) for schema in schemas.values()}
    if "rollout_ids" in columns:
        # Ids begin anew in every step.
        step = steps if len(steps) == 1 and None not in steps else ()
        roles = replace(roles, rollouts=(columns["rollout_ids"], *(name for name in step if name)))
    return ResolvedColumns(
        columns=columns,
        roles=roles,
        notes=tuple(dict.fromkeys([*_choices(columns, available, request), *notes])),
        step=steps.pop() if len(steps) == 1 else None,
    )


def needed_columns(
    path: str, schema: pa.Schema, request: ReadRequest, plan_columns: PlanColumns, *, alone: bool
) -> list[str]:
    """Every column of one file that may be read, steps and versions included, whether or not rows are grouped by them.

    At least what `resolve_schema` will name of all files, so that each is checked while it is open for the first time.
    alone: whether it is the only file.
    """
    batch = plan_columns.batch
    if not plan_columns.batch_required:  # other files may lack it, and what it holds is not looked at then
        plan_columns = replace(plan_columns, batch=None)
    roles = resolve_schema({path: schema}, request, plan_columns).roles
    marks = (_mark(name, schema, request) for name in (*MARKS, *((batch,) if batch else ())))
    is_chosen_by_all = not alone and (plan_columns.levels or plan_columns.clusters)
    others = (name for name in ALTERNATIVES if name in schema.names) if is_chosen_by_all else ()
    return list(dict.fromkeys((*roles.needed, *filter(None, marks), *others)))


def _shared(columns_of: Mapping[str, dict[str, str]], optional: Collection[str]) -> dict[str, str]:
    (first, columns), *others = columns_of.items()
    for path, theirs in others:
        for name in sorted({*columns, *theirs} - set(optional)):
            column, other = columns.get(name), theirs.get(name)
            if column != other:
                raise DataError(
                    f"{shown(path)} has {other or 'no column'} for {name}, {shown(first)} has {column or 'none'}.",
                    APART,
                )
    return {name: column for name, column in columns.items() if all(t.get(name) == column for t in columns_of.values())}


def _resolved(
    path: str,
    schema: pa.Schema,
    overrides: Mapping[str, str],
    *,
    plan_columns: PlanColumns,
    optional: Collection[str],
    notes: list[str],
) -> dict[str, str]:
    """One file's columns by canonical name; an optional one of an unfit type goes, with a note."""
    with naming(shown(path)):
        lists = [field.name for field in schema if types.holds_log_probs(field.type)]
        columns = resolve(schema.names, overrides, plan_columns, lists)
        for name, column in list(columns.items()):
            type = _column_type(schema, column)
            fits, expected = FITS.get(name, (types.holds_log_probs, types.LOG_PROBS))
            if fits(type):
                continue
            is_lent = name == "current_log_probs" and "old_log_probs" not in columns
            if name in optional and not is_lent and name not in overrides:
                notes.append(f"{column} is not used as {name}: it holds {type}, not {expected}.")
                del columns[name]
                continue
            hint = f"Name another column with ⟦map {name}=COLUMN⟧, or write this one in that form."
            if is_list(type) and is_list(type.value_type):
                hint = (
                    "Write it flat, one list of numbers per row: join lists of one, or of turns; of several responses, "
                    "write a row for each."
                )
            raise DataError(f"{column} holds {type}; {name} must be {expected}.", hint)
    return columns


def _shared_keys(
    schemas: Mapping[str, pa.Schema], names: Sequence[str], request: ReadRequest, purpose: str = "to group by"
) -> dict[str, str]:
    """The columns that keys stand for, the same in every file."""
    keys: dict[str, dict[str, str]] = {}
    for path, schema in schemas.items():
        with naming(shown(path)):
            lag = _lag(schema, request)
            keys[path] = {
                name: lag if name == "lag" and lag else key_column(name, schema.names, request.columns, purpose)
                for name in names
            }
            for name, column in keys[path].items():
                if not isinstance(column, Lag) and not types.holds_key(type := _column_type(schema, column)):
                    what = f"{column} holds {type}; {purpose} {name} takes {types.KEY}."
                    raise DataError(what, "Name another column.")
    return _shared(keys, ())


def _lag(schema: pa.Schema, request: ReadRequest) -> str | None:
    """What the key `lag` stands for where no column has that name: a column of it, or else the step less the version;
    None without them."""
    if "lag" in schema.names:
        return None
    if (column := _mark("policy_version_lag", schema, request)) is not None:
        return column
    step, version = (_mark(name, schema, request) for name in ("step", "policy_version"))
    return Lag(step, version) if step and version else None


def _looked_into(schemas: Mapping[str, pa.Schema], request: ReadRequest, plan_columns: PlanColumns) -> dict[str, Any]:
    """What a diagnosis looks into, by the names of Roles: columns of every file, in a type that serves."""
    if not plan_columns.levels:
        return {}

    def everywhere(columns: Iterable[str], fits: Callable[[pa.DataType], bool]) -> str | None:
        shared = (
            column
            for column in columns
            if all(column in schema.names and fits(_column_type(schema, column)) for schema in schemas.values())
        )
        return next(shared, None)

    asked = _shared_keys(schemas, plan_columns.by, request, purpose="to look at level by level")
    mapped = {name: (column,) for name, column in request.columns.items()}
    columns = {name: everywhere(mapped.get(name, names), types.holds_key) for name, names in LEVELS.items()}
    levels = {name: column for name, column in columns.items() if column and column not in asked.values()}
    found = {
        name: everywhere(mapped.get(column.canonical, column.names), column.fits) for name, column in OF_TOKENS.items()
    }
    of_tokens = {
        name: column for name, column in found.items() if column and all(map(found.get, OF_TOKENS[name].beside))
    }
    advantages = mapped.get("advantages", ("advantages", *ALIASES["advantages"]))
    return {
        "levels": tuple((levels | asked).items()),
        "of_tokens": of_tokens,
        "row_advantage": everywhere(advantages, types.holds_advantages),
    }


def _cluster(schemas: Mapping[str, pa.Schema], request: ReadRequest, plan_columns: PlanColumns) -> str | None:
    """The column whose rows of one value are drawn together; None where there is none, or none is wanted."""
    named = request.cluster_by
    if not plan_columns.clusters or named == NO_CLUSTERS:
        return None
    if named is not None:
        return _shared_keys(schemas, (named,), request, purpose="to cluster by")[named]
    if "prompt" in request.columns:
        return request.columns["prompt"]
    for name in PROMPTS:
        if name in request.columns.values() or not all(name in schema.names for schema in schemas.values()):
            continue
        # The number of a prompt's tokens, which some call prompt_tokens, is no prompt.
        if name not in PROMPT_TEXTS or not any(
            types.holds_reward(_column_type(schema, name)) for schema in schemas.values()
        ):
            return name
    return None


def _mark(name: str, schema: pa.Schema, request: ReadRequest) -> str | None:
    """The one column that may stand for a name and that rows can be grouped by."""
    columns = candidates(name, schema.names, request.columns)
    fits = len(columns) == 1 and columns[0] in schema.names and types.holds_key(_column_type(schema, columns[0]))
    return columns[0] if fits else None


def _id_columns(schema: pa.Schema, request: ReadRequest) -> tuple[str, ...]:
    """What tells a file's rows apart, of whatever type: sample_id by that very name or as mapped, the step, the split,
    the branch, and which copy of a drawn row it is.  None where the file lacks one of them.

    An alias is not taken: `index` and the like number prompts in some frameworks.
    """
    own = request.columns.get("sample_id") or "sample_id"
    steps = candidates("step", schema.names, request.columns)
    if lacking := next((name for name in request.ids_beside if name not in schema.names), None):
        similar = f"Similar columns: {nearest(lacking, schema.names)}."
        raise UsageError(f"There is no column '{lacking}' to tell rows apart.", similar)
    names = (
        own,
        *request.ids_beside,
        *(steps if len(steps) == 1 else ()),
        *(name for name in (SPLIT, BRANCH, DRAW) if name in schema.names),
    )
    return names if all(name in schema.names and _column_type(schema, name) for name in names) else ()


def _unused_marks(schemas: Mapping[str, pa.Schema], request: ReadRequest, n_ids: int) -> Iterator[str]:
    """Sentences on what would tell rows and files apart and does not.  n_ids: in how many ways files do it."""
    if n_ids > 1:
        yield "sample_id is not in every file, or not beside the same step: rows that are there twice are not found."
    for schema in schemas.values():
        columns = candidates("step", schema.names, request.columns)
        if (
            len(columns) == 1
            and columns[0] in schema.names
            and not types.holds_key(type := _column_type(schema, columns[0]))
        ):
            yield f"{columns[0]} is not used as step: it holds {type}, not {types.KEY}."


def _like_versions(schemas: Mapping[str, pa.Schema], request: ReadRequest) -> Iterator[str]:
    """A sentence on a column that is named as if it told the policy's version, where no other column does."""
    for schema in schemas.values():
        if _mark("policy_version", schema, request) or _mark("policy_version_lag", schema, request):
            return
    for field in next(iter(schemas.values())):
        words = set(re.findall("[a-z]+", re.sub("([a-z])([A-Z])", r"\1_\2", field.name).lower()))
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        is_free = re.fullmatch(r"[\w.-]+", field.name) and field.name not in request.columns.values()
        if is_number and is_free and words & POLICY_WORDS and words & VERSION_WORDS:
            yield (
                f'Column "{field.name}" is not used. If it tells which version of the weights sampled a row, add '
                f"--map policy_version={field.name}."
            )


def _column_type(schema: pa.Schema, column: str) -> pa.DataType:
    if len(schema.get_all_field_indices(column)) > 1:
        raise DataError(f"Two columns are called {column}.", "Rename one of them and write the file again.")
    return schema.field(column).type


def _choices(columns: Mapping[str, str], available: Collection[str], request: ReadRequest) -> Iterator[str]:
    for name, column in columns.items():
        if column not in (name, request.columns.get(name)):
            yield f"Using {column} as {name}." if isinstance(column, Lag) else f'Using column "{column}" as {name}.'
    mask = columns.get("response_mask")
    if mask is None:
        yield "No mask column: every token counts as valid."
    elif (second := SECOND_MASKS.get(mask)) in available:
        yield f"{second} is not applied: only {mask} masks tokens."


WHAT = "The files have different columns, which one Parquet file cannot hold"
HINT = "Filter them one by one, or write .jsonl instead."


def joined_schema(schemas: Mapping[str, pa.Schema]) -> pa.Schema | None:
    """The columns of all files, in the first one's order, null allowed where any file allows it; None where all have
    the same.

    schemas: by path.  A DataError where a file has other columns, or columns of other types.
    """
    (first, schema), *others = schemas.items()
    others = [(path, theirs) for path, theirs in others if theirs != schema]
    if not others:
        return None
    for path, theirs in ((first, schema), *others):
        twice = next((name for name in theirs.names if theirs.names.count(name) > 1), None)
        if twice is not None:
            raise DataError(f"{WHAT}: {path} has two columns called {twice}.", HINT)
    fields = list(schema)
    for path, theirs in others:
        for name in sorted({*schema.names} ^ {*theirs.names}):
            has, lacks = (first, path) if name in schema.names else (path, first)
            raise DataError(f"{WHAT}: {has} has {name}, {lacks} has not.", HINT)
        for i, field in enumerate(fields):  # which differ from the first file's in where null is allowed alone
            other = theirs.field(field.name)
            both = _joined_field(field, other)
            if both is None:
                own = schema.field(i).type
                raise DataError(f"{WHAT}: {field.name} is {own} in {first}, {other.type} in {path}.", HINT)
            fields[i] = both
    return pa.schema(fields, metadata=schema.metadata)


def different(later: pa.Schema, first: pa.Schema) -> DataError:
    """The error for rows whose columns no footer told before."""
    pairs = (
        (name, *(s.field(name).type if name in s.names else "missing" for s in (first, later)))
        for name in dict.fromkeys([*first.names, *later.names])
    )
    name, had, has = next((pair for pair in pairs if pair[1] != pair[2]), ("the order", "one", "another"))
    return DataError(f"{WHAT}: {name} is {had} in the first rows, {has} in later ones.", HINT)


def conformed(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """A file's rows with its columns as all files have them, those that were added after them."""
    if not {*columns.names} <= {*table.column_names}:
        return table
    added = [field for field in table.schema if field.name not in columns.names]
    schema = pa.schema([*columns, *added], metadata=table.schema.metadata)
    if table.schema == schema:
        return table
    return pa.table([table.column(field.name).cast(field.type) for field in schema], schema=schema)


def _joined_field(field: pa.Field, other: pa.Field) -> pa.Field | None:
    """The field with null allowed where either allows it; None where the types differ in more."""
    nullable, type, theirs = field.nullable or other.nullable, field.type, other.type
    if type == theirs:
        return field.with_nullable(nullable)
    if type.id != theirs.id or type.num_fields != theirs.num_fields:
        return None
    parts = [_joined_field(type.field(i), theirs.field(i)) for i in range(type.num_fields)]
    if not parts or any(part is None for part in parts):
        return None
    whole = _with_parts(type, parts)
    same = whole is not None and _with_parts(theirs, parts) == whole
    return field.with_type(whole).with_nullable(nullable) if same else None


def _with_parts(type: pa.DataType, parts: list[pa.Field]) -> pa.DataType | None:
    if pa.types.is_struct(type):
        return pa.struct(parts) if [part.name for part in parts] == type.names else None
    if pa.types.is_fixed_size_list(type):
        return pa.list_(parts[0], type.list_size)
    makers = {pa.types.is_large_list: pa.large_list, pa.types.is_list_view: pa.list_view}
    makers |= {pa.types.is_large_list_view: pa.large_list_view, pa.types.is_list: pa.list_}
    return next((make(parts[0]) for fits, make in makers.items() if is_list(type) and fits(type)), None)
