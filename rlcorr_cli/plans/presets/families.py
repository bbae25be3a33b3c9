"""FAMILIES: which framework a preset comes from, for lists of presets.  A new framework is a row here."""

from rlcorr_cli.plans.presets import PRESETS, Preset, guide, verl

FAMILIES: dict[str, str] = {
    "verl": "verl, rollout correction guide",
    "verl_0.9": "verl 0.9",
    "slime": "slime and miles",
    "trl": "TRL",
    "nemo": "NeMo-RL",
    "openrlhf": "OpenRLHF",
    "skyrl": "SkyRL",
    "areal": "AReaL",
    "prime": "prime-rl",
    "roll": "ROLL",
    "methods": "Methods of papers, in several frameworks",
}
"""Family -> its heading.  Presets start with their family's name, but for verl's and those of papers."""

_ALSO = {"miles": "slime", "nemo_rl": "nemo", "prime_rl": "prime"}


def families(name: str) -> tuple[str, ...]:
    """The families of a framework's name, however it is written; none of any other name."""
    key = name.strip().lower().replace("-", "_")
    key = _ALSO.get(key, key)
    return tuple(each for each in FAMILIES if each == key or each.startswith(f"{key}_"))


def of_family(key: str) -> tuple[Preset, ...]:
    """A family's presets, in the order of PRESETS."""
    return tuple(row for row in PRESETS.values() if _family_of(row) == key)


def _family_of(row: Preset) -> str:
    if row in guide.ROWS:
        return "verl"
    if row in verl.ROWS:
        return "verl_0.9"
    prefix = row.name.split("_")[0]
    return prefix if prefix in FAMILIES else "methods"
