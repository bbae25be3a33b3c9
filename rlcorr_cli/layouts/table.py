"""LAYOUTS: the kinds of files that frameworks write, one row each, and which of them a file is.

Loads nothing heavy, because options name the rows; a row's module is loaded when a file is looked at.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.layouts.head import Head
    from rlcorr_cli.layouts.layout import BatchLayout, Layout


@dataclass(frozen=True, kw_only=True)
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
        return getattr(import_module(f"rlcorr_cli.layouts.{self.module}"), self.attribute)


LAYOUTS: tuple[Row, ...] = (
    Row(name="miles", framework="miles", module="miles", attribute="LAYOUT", suffixes=(".pt", ".jsonl")),
    Row(
        name="miles-dashboard", framework="miles", module="miles_dashboard", attribute="LAYOUT", suffixes=(".parquet",)
    ),
    Row(name="miles-policy-loss", framework="miles", module="miles", attribute="POLICY_LOSS", suffixes=(".pt",)),
    Row(name="nemo-gym", framework="NeMo-Gym", module="nemo_gym", attribute="LAYOUT", suffixes=(".jsonl",)),
    Row(name="nemo-rl", framework="NeMo-RL", module="nemo_rl", attribute="LAYOUT", suffixes=(".jsonl",)),
    Row(
        name="open-instruct",
        framework="open-instruct",
        module="open_instruct",
        attribute="LAYOUT",
        suffixes=(".jsonl",),
    ),
    Row(name="openai", framework="vLLM and OpenAI", module="openai", attribute="LAYOUT", suffixes=(".jsonl",)),
    Row(name="prime-rl", framework="prime-rl", module="prime_rl", attribute="LAYOUT", suffixes=(".jsonl",)),
    Row(
        name="prime-rl-batches", framework="prime-rl", module="prime_rl_batches", attribute="LAYOUT", suffixes=(".bin",)
    ),
    Row(
        name="prime-rl-traces", framework="prime-rl", module="prime_rl_traces", attribute="LAYOUT", suffixes=(".jsonl",)
    ),
    Row(name="roll", framework="ROLL", module="roll", attribute="LAYOUT", suffixes=(".pkl",)),
    Row(name="sglang", framework="SGLang", module="sglang", attribute="LAYOUT", suffixes=(".jsonl",)),
    Row(name="skyrl", framework="SkyRL", module="skyrl", attribute="LAYOUT", suffixes=(".pkl",)),
    Row(name="slime", framework="slime", module="slime", attribute="LAYOUT", suffixes=(".pt",)),
    Row(name="verl", framework="verl", module="verl", attribute="LAYOUT", suffixes=(".dp", ".pkl")),
    Row(name="verl-tq", framework="verl", module="verl_tq", attribute="LAYOUT", suffixes=(".pt",)),
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
        layout: BatchLayout = import_module(f"rlcorr_cli.layouts.{name}").BATCH
        if all(batch.get(key) is not None for key in layout.keys):
            return name, layout
    return None
