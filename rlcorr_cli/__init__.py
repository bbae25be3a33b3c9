"""rlcorr: offline log-prob analysis for LLM reinforcement learning.

The whole flow, from a dump to its verdict, a gate, the corrected dataset, a picture and a page:

    from pathlib import Path
    from rlcorr_cli import analyze, check, filter, plot, to_html

    report = analyze("dump.parquet", preset="token_is", group_by="step", pictures=True)
    print(report.verdict.level, report.verdict.usable, report.to_polars())
    if check(report, max={"kl": 0.1}).passed:
        filtered = filter("dump.parquet", "corrected.parquet", preset="token_is")
        print(filtered.rows_in, filtered.rows_out)
    plot(report, "overview.png")
    Path("report.html").write_text(to_html(report), encoding="utf-8")

Nothing heavy is imported here, because `rlcorr --help` must stay quick: the names of `api` load when they are first
asked for.  Type checkers read the file beside this one, which names them.
"""

from typing import Any

__version__ = "0.2.0"


def __getattr__(name: str) -> Any:
    from importlib import import_module

    api = import_module("rlcorr_cli.api")
    if name not in (*api.__all__, "__all__"):
        raise AttributeError(f"module 'rlcorr_cli' has no attribute '{name}'")
    return getattr(api, name)


def __dir__() -> list[str]:
    from importlib import import_module

    return sorted({"__version__", *import_module("rlcorr_cli.api").__all__})
