"""LAYOUTS: the kinds of files that frameworks write, one row each, and which of them a file is.

Loads nothing heavy, because options name the rows; a row's module is loaded when a file is looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.io.layouts.head import Head
    from rlcorr_cli.io.layouts.layout import BatchLayout, Layout


@dataclass(frozen=True)
class Row:
    """A layout's name, as `--format` takes it; its framework; the module in `layouts` and the Layout's name there;
    the suffixes that its files have."""

    name: str
    framework: str
    module: str
    attribute: str
    suffixes: tuple[str, ...]

    @property
    def layout(self) -> "Layout":
        """The layout itself; loads its module."""
        return getattr(import_module(f"rlcorr_cli.io.layouts.{self.module}"), self.attribute)


LAYOUTS: tuple[Row, ...] = (
    Row("miles", "miles", "miles", "LAYOUT", (".pt", ".jsonl")),
    Row("miles-dashboard", "miles", "miles_dashboard", "LAYOUT", (".parquet",)),
    Row("miles-policy-loss", "miles", "miles", "POLICY_LOSS", (".pt",)),
    Row("nemo-gym", "NeMo-Gym", "nemo_gym", "LAYOUT", (".jsonl",)),
    Row("nemo-rl", "NeMo-RL", "nemo_rl", "LAYOUT", (".jsonl",)),
    Row("open-instruct", "open-instruct", "open_instruct", "LAYOUT", (".jsonl",)),
    Row("openai", "vLLM and OpenAI", "openai", "LAYOUT", (".jsonl",)),
    Row("prime-rl", "prime-rl", "prime_rl", "LAYOUT", (".jsonl",)),
    Row("prime-rl-batches", "prime-rl", "prime_rl_batches", "LAYOUT", (".bin",)),
    Row("prime-rl-traces", "prime-rl", "prime_rl_traces", "LAYOUT", (".jsonl",)),
    Row("roll", "ROLL", "roll", "LAYOUT", (".pkl",)),
    Row("sglang", "SGLang", "sglang", "LAYOUT", (".jsonl",)),
    Row("skyrl", "SkyRL", "skyrl", "LAYOUT", (".pkl",)),
    Row("slime", "slime", "slime", "LAYOUT", (".pt",)),
    Row("verl", "verl", "verl", "LAYOUT", (".dp", ".pkl")),
    Row("verl-tq", "verl", "verl_tq", "LAYOUT", (".pt",)),
)
BATCHES = ("trl",)
"""The modules in `layouts` of batches in memory, by the framework's name, each with a BATCH."""
NAMES = tuple(row.name for row in LAYOUTS)
TRAINED = frozenset(("miles", "miles-policy-loss", "nemo-rl", "prime-rl", "skyrl", "slime", "verl"))
"""Those whose framework writes a trained policy beside the rollout's."""
SUFFIXES = tuple(dict.fromkeys(suffix for row in LAYOUTS for suffix in row.suffixes))


@cache
def layout(name: str) -> "Layout":
    """The layout of that name."""
    return LAYOUTS[NAMES.index(name)].layout


def recognised(head: "Head") -> tuple[str, str] | None:
    """The name of the layout that a file is of, and the sign; None of a file that is of none."""
    for row in LAYOUTS:
        if head.name.lower().endswith(row.suffixes):
            sign = row.layout.recognise(head)
            if sign is not None:
                return row.name, sign
    return None


def batch_layout(batch: Mapping[str, Any]) -> "tuple[str, BatchLayout] | None":
    """The framework that a batch in memory is of, and its layout; None of a batch of none."""
    for name in BATCHES:
        layout: BatchLayout = import_module(f"rlcorr_cli.io.layouts.{name}").BATCH
        if all(batch.get(key) is not None for key in layout.keys):
            return name, layout
    return None
