"""A plan as the options of a framework's own config: the lines to paste, or that the framework has no such options.

Each framework proposes options for a plan (`to_config`), as well as it can; what is proposed is read back, and is an
answer only where it is read as the same plan.
"""

from collections.abc import Mapping
from typing import Any

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.framework import Framework, meaning, scalar
from rlcorr_cli.frameworks.read import FRAMEWORKS, plan_in
from rlcorr_cli.frozen import frozen
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.presets import framework_key


@frozen(kw_only=True)
class Lines:
    """framework: its name, with its release where only that reads them.  text: YAML, or TOML where its config is.
    flags: the same for its command line, where it takes flags.  notes: what differs."""

    framework: str
    text: str
    flags: str = ""
    notes: tuple[str, ...] = ()


def lines_of(plan: Plan, name: str) -> Lines | None:
    """The lines of a framework's config that mean a plan; None where it cannot express it."""
    for framework in _called(name):
        config = framework.to_config(plan)
        if config is None:
            continue
        try:
            found = plan_in(dict(config), framework if framework.is_profile else None).plan
        except UsageError:
            continue
        if meaning(found) == meaning(plan):
            return Lines(
                framework=framework.name,
                text="\n".join(_toml(config) if framework.toml else _yaml(config)),
                flags=" ".join(_flags(config)) if framework.flags else "",
                notes=tuple(filter(None, (*_notes_on_written(plan, found), *framework.notes(found), framework.needs))),
            )
    return None


def names() -> tuple[str, ...]:
    """The frameworks whose lines can be had."""
    return tuple(each.name.lower().replace("-", "_") for each in FRAMEWORKS if not each.is_profile)


def _called(name: str) -> tuple[Framework, ...]:
    """A framework of a name, however it is written; verl's releases, newest first."""
    key = framework_key(name)
    found = tuple(each for each in FRAMEWORKS if not each.is_profile and framework_key(each.name) == key)
    if not found:
        raise UsageError(f"Unknown framework '{name}'.", f"Try one of: {', '.join(names())}.")
    releases = (each for each in reversed(FRAMEWORKS) if each.is_profile and each.name.startswith(f"{key}-0"))
    return (*releases, *found)


def _notes_on_written(plan: Plan, found: Plan) -> tuple[str, ...]:
    """What the framework does otherwise where log-ratios are far out."""
    if plan.log_ratio_limit == found.log_ratio_limit:
        return ()
    limit = "no limit" if found.log_ratio_limit is None else f"a limit of +-{found.log_ratio_limit:g}"
    own = "none" if plan.log_ratio_limit is None else f"+-{plan.log_ratio_limit:g}"
    return (f"It has {limit} on log-ratios; the plan has {own}.",)


def _yaml(value: Mapping[str, Any], depth: int = 0) -> list[str]:
    lines: list[str] = []
    for key, each in value.items():
        head = f"{'  ' * depth}{key}:"
        if isinstance(each, Mapping) and each:
            lines += [head, *_yaml(each, depth + 1)]
        elif isinstance(each, list) and each and all(isinstance(one, Mapping) for one in each):
            lines.append(head)
            for one in each:
                first, *rest = _yaml(one, depth + 2)
                lines += [f"{'  ' * (depth + 1)}- {first.strip()}", *rest]
        else:
            lines.append(f"{head} {scalar(each)}")
    return lines


def _toml(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[str]:
    """Tables of options; an option that is null is left out, as TOML has none."""
    here: list[str] = []
    below: list[str] = []
    for key, each in value.items():
        if isinstance(each, Mapping):
            below += _toml(each, (*path, key))
        elif each is not None:
            here.append(f'{key} = "{each}"' if isinstance(each, str) else f"{key} = {scalar(each)}")
    head = [f"[{'.'.join(path)}]"] if here and path else []
    return [*head, *here, *below]


def _flags(value: Mapping[str, Any], path: tuple[str, ...] = ()) -> list[str]:
    flags: list[str] = []
    for key, each in value.items():
        if isinstance(each, Mapping):
            flags += _flags(each, (*path, key))
        elif each is not None:
            texts = map(scalar, each if isinstance(each, list) else [each])
            flags += [f"--{'.'.join((*path, key))}", *texts]
    return flags
