"""Options that there were once, each with what to type in its place."""

_IS = "Write --is SCOPE:LOW,HIGH, such as --is token:,2."
_BLOCK = "Write it in the objective block of a plan file (`rlcorr help objectives`)."

OPTIONS: dict[str, str] = {
    "--bound": "Write --vary is.high, or --vary is.low.",
    "--coef-normalized": "Write --coef normalized.",
    "--dual-clip": _BLOCK,
    "--is-high": _IS,
    "--is-low": _IS,
    "--is-outside": "Write --is SCOPE:LOW,HIGH:zero, such as --is token:0.5,5:zero.",
    "--loss-constant": _BLOCK,
    "--loss-denominator": _BLOCK,
    "--ppo-clip": "Write --clip-low 0.2 --clip-high 0.2.",
    "--side": "Write it behind what moves: --vary ratio.seq_mean.low.",
    "--threads": "Write --engine threads --workers N.",
    "--write-unused-weights": "Leave it out: weights are written where the plan's loss takes them.",
}
"""Option -> what to type."""
OF_COMMANDS: dict[tuple[str, str], str] = {
    ("diff", "--by"): "Write --pair-by COLUMN.",
    ("inspect", "--by"): "Write --rank MEASURE.",
}
"""A command and an option that others may still have -> what to type."""
VALUES: dict[tuple[str, str], str] = {
    ("--on-bad-row", "quarantine"): "Write --quarantine PATH alone.",
}
"""An option and a value that it took once -> what to type."""


def instead_of(command: str | None, option: str) -> str | None:
    """What to type in the place of an option; None of one that never was."""
    return OF_COMMANDS.get((command or "", option)) or OPTIONS.get(option)
