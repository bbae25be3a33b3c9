"""FRAMEWORKS, and a plan from a file: a framework's own config, known by its keys or by the profile, or our records.

A framework is a module that says where its keys stand, which plan they mean and, of a profile, what its numbers are,
and a row here.  Its quirks (inverse k1 bounds, empty sequences counted, clamped spreads) live in that module alone.
"""

from dataclasses import fields, replace
from typing import Any

from rlcorr_cli.errors import UsageError, naming
from rlcorr_cli.frameworks.areal import AREAL
from rlcorr_cli.frameworks.chosen import ChosenPlan
from rlcorr_cli.frameworks.framework import Framework, meaning
from rlcorr_cli.frameworks.ms_swift import MS_SWIFT
from rlcorr_cli.frameworks.nemo import NEMO
from rlcorr_cli.frameworks.open_instruct import OPEN_INSTRUCT
from rlcorr_cli.frameworks.openrlhf import OPENRLHF
from rlcorr_cli.frameworks.prime import PRIME
from rlcorr_cli.frameworks.roll import ROLL
from rlcorr_cli.frameworks.skyrl import SKYRL
from rlcorr_cli.frameworks.slime import SLIME, SLIME_RUN
from rlcorr_cli.frameworks.trl import TRL
from rlcorr_cli.frameworks.verl import VERL, VERL_0_6, VERL_0_7, VERL_0_8, VERL_0_9, VERL_MISMATCH
from rlcorr_cli.frameworks.xtuner import XTUNER
from rlcorr_cli.plans.files import load, objective_block, plan_from_dict
from rlcorr_cli.plans.objective import CLIPPED, ObjectiveName
from rlcorr_cli.plans.plan import Plan
from rlcorr_cli.plans.preset_configs import PeerConfig
from rlcorr_cli.plans.presets import PRESETS, Preset

FRAMEWORKS: tuple[Framework, ...] = (
    *(TRL, NEMO, OPENRLHF, SKYRL, AREAL, PRIME, MS_SWIFT, OPEN_INSTRUCT, ROLL, XTUNER, VERL, SLIME_RUN),
    *(VERL_MISMATCH, VERL_0_6, VERL_0_7, VERL_0_8, VERL_0_9, SLIME),
)

PROFILES: dict[str, Framework] = {framework.name: framework for framework in FRAMEWORKS if framework.is_profile}
"""Those whose own numbers can be had, by the name that --profile takes."""

OWN_KEYS = tuple(each.name for each in fields(Plan))
"""The keys of our own records."""

LISTED = 6
"""Presets that an error names, and options that a note does."""


def read_plan(path: str, profile: Framework | None) -> ChosenPlan:
    """The plan in a file: a framework's config when a profile is given, else our own records."""
    data, notes = load(path)
    with naming(path):
        read = plan_in(data, profile)
    return replace(read, notes=tuple(f"{path}, {note}" for note in (*notes, *read.notes)), file=path)


def plan_in(data: dict[str, Any], profile: Framework | None) -> ChosenPlan:
    """The same of what a file would hold."""
    data = _of_wandb(data)
    if profile is not None:
        config = profile.options(data)
        return ChosenPlan(plan=profile.read(config), profile=profile, notes=profile.config_notes(config))
    known_by = [framework for framework in FRAMEWORKS if not framework.is_profile and framework.knows(data)]
    known_by.sort(key=lambda framework: not framework.is_signed(data))
    objectives = {option: name for framework in known_by for option, name in framework.objectives(data).items()}
    if len(known_by) > 1:
        names = " and ".join(framework.name for framework in known_by)
        raise UsageError(f"it holds options of {names}.", "Name a file that holds those of one alone.")
    if not known_by:
        return _own_records(data)
    (framework,) = known_by
    config = framework.options(data)
    plan = framework.read(config)
    notes = (f"read as {framework.name}'s config.", *framework.notes(plan), *framework.config_notes(config))
    notes += tuple(_of_objective(option, name) for option, name in objectives.items())
    unread = framework.unread(data)
    if unread:
        more = f" and {len(unread) - LISTED:,} more" if len(unread) > LISTED else ""
        notes += (f"not read: {', '.join(unread[:LISTED])}{more}.",)
    return ChosenPlan(plan=plan, notes=notes, loss=next(iter(objectives.values()), None))


def _of_objective(option: str, name: ObjectiveName) -> str:
    """What an option that chooses an objective means here."""
    knobs = ", with the run's clips as --clip-low and --clip-high" if name in CLIPPED else ""
    knobs = ", of the run's beta where a plan file's objective block has it" if name == "dro" else knobs
    return f"{option} is no plan but an objective: --objective {name} computes it{knobs}."


def _of_wandb(data: dict[str, Any]) -> dict[str, Any]:
    """A run's options out of the config.yaml that wandb keeps, which has each under `value`; else what is given."""
    if "_wandb" not in data:
        return data
    options = {key: each for key, each in data.items() if key != "_wandb" and isinstance(each, dict)}
    return {key: each["value"] for key, each in options.items() if "value" in each}


def _own_records(data: dict[str, Any]) -> ChosenPlan:
    """The plan of our own records; a UsageError that says whose configs are read where they are none."""
    own = dict(data)
    block = own.pop("objective", None)
    readers = () if any(key in OWN_KEYS for key in own) else _readers(own)
    if readers:
        raise UsageError("it does not tell whose options it holds.", " ".join(readers))
    try:
        plan = plan_from_dict(own)
    except UsageError as error:
        names = [framework.name for framework in FRAMEWORKS if not framework.is_profile]
        read = f"Configs are read of {', '.join(names[:-1])} and {names[-1]}; of verl in 2025-10 with its ⟦profile⟧."
        raise UsageError(error.what, f"{error.do} {read}") from None
    return ChosenPlan(plan=plan, objective=None if block is None else objective_block(block))


def _readers(data: dict[str, Any]) -> tuple[str, ...]:
    """How options would be read that stand where they tell no framework: in blocks of one, and by a profile."""
    places: list[str] = []
    for each in (framework for framework in FRAMEWORKS if any(key in framework.common for key in data)):
        paths = [".".join(path) for path in (*each.own, *each.blocks)]
        whole = [path for path in paths if not any(other.endswith(f".{path}") for other in paths)]
        places.append(f"under {' or '.join(whole)} for {each.name}")
    profiles = [each for each in PROFILES.values() if each.knows(data) and _understood(data, each) is not None]
    sentences = (f"Write them {', or '.join(places)}.",) if places else ()
    return (*sentences, f"⟦profile {profiles[-1].name}⟧ reads them as they are.") if profiles else sentences


def preset_in(row: Preset, profile: Framework) -> ChosenPlan:
    """A preset as a framework's release has it; a UsageError where the release has nothing that means the same."""
    config = row.config
    plan = None if config is None or not config.reader else _understood(_options(config), profile)
    if config is None or plan is None or meaning(plan) != meaning(row.plan):
        names = presets_of(profile)
        has = f"It has {', '.join(names[:LISTED])}{', …' if len(names) > LISTED else ''}; or name" if names else "Name"
        raise UsageError(f"{profile.name} has no preset '{row.name}'.", f"{has} its own config with ⟦plan⟧.")
    options = ", ".join(line.strip() for line in config.text.splitlines() if not line.endswith(":"))
    return ChosenPlan(plan=plan, profile=profile, notes=(f"{row.name} as {profile.name} has it: {options}.",))


def presets_of(profile: Framework) -> tuple[str, ...]:
    """The presets that a framework's release has, each by its shortest name."""
    configs = {row: row.config for row in PRESETS.values() if row.config is not None and row.config.reader}
    plans = {row: _understood(_options(config), profile) for row, config in configs.items()}
    same = (row for row, plan in plans.items() if plan is not None and meaning(plan) == meaning(row.plan))
    return tuple(min((row.name, *row.aliases), key=len) for row in same)


def _options(config: PeerConfig) -> dict[str, Any]:
    """What its text holds."""
    from rlcorr_cli.plans.yaml_files import parse_yaml  # here, not above: most runs read no YAML

    return parse_yaml(config.text).data


def _understood(data: dict[str, Any], profile: Framework) -> Plan | None:
    """The plan of a config; None where the release does not know an option, or refuses a value."""
    try:
        return plan_in(data, profile).plan
    except UsageError:
        return None
