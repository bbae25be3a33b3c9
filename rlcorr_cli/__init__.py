"""rlcorr: offline log-prob analysis for LLM reinforcement learning.

Nothing heavy is imported here, because `rlcorr --help` must stay quick: the names of `api` load when they are first
asked for.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.api import analyze, check, filter_dump
    from rlcorr_cli.plans import presets
    from rlcorr_cli.plans.plan import Plan

__version__ = "0.1.0"
__all__ = ["Plan", "analyze", "check", "filter_dump", "presets"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'rlcorr_cli' has no attribute '{name}'")
    from importlib import import_module

    if name == "presets":
        return import_module("rlcorr_cli.plans.presets")
    return getattr(import_module("rlcorr_cli.plans.plan" if name == "Plan" else "rlcorr_cli.api"), name)
