"""Options that commands share, declared once."""

from typing import Annotated, Any, Literal

import typer

from rlcorr_cli.commands import completion
from rlcorr_cli.plans.plan import SCOPES, Mode, Normalize, WeightScope
from rlcorr_cli.reading.bad_rows import BadRowAction, NonfiniteAction
from rlcorr_cli.reading.formats import NAMES, STREAMED, WRITTEN
from rlcorr_cli.reading.request import MOST_ROWS, MOST_SEED
from rlcorr_cli.show.forms import FORMS

READING = "Reading the dump"
PLAN = "Correction plan"
COMPUTING = "Computing"
RULES = "Rules"
OUTPUT = "Output"
KINDS = (
    *("overview", "metrics", "ratio", "scatter", "surprise", "position", "length", "weights", "staleness"),
    *("compare", "diagnose"),
)
"""Kinds of pictures, named here because their table loads matplotlib."""


def _seed(help: str, panel: str) -> Any:
    return typer.Option("--seed", min=0, max=MOST_SEED, metavar="N", help=help, rich_help_panel=panel)


Dumps = Annotated[
    list[str], typer.Argument(metavar="DUMP...", help=f"Files, directories, globs, or - for {STREAMED.title} on stdin.")
]
DumpsOrReport = Annotated[
    list[str], typer.Argument(metavar="DUMP...", help="As for analyze, or one report.json that analyze -o wrote.")
]
FormatName = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="NAME",
        help=f"What the dump is: auto, {', '.join(NAMES)}.",
        autocompletion=completion.formats,
        rich_help_panel=READING,
    ),
]
Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="CANONICAL=COLUMN",
        help="Name a column yourself, such as old_log_probs=logp. Repeatable.",
        autocompletion=completion.mapped_columns,
        rich_help_panel=READING,
    ),
]
ModeName = Annotated[
    Mode | None,
    typer.Option("--mode", help="Compare the old policy, or the current one.", rich_help_panel=READING),
]
GroupBy = Annotated[
    list[str] | None,
    typer.Option(
        "--group-by",
        metavar="COLUMN",
        help="Metrics per value of a column. Repeatable.",
        autocompletion=completion.columns,
        rich_help_panel=READING,
    ),
]
ClusterBy = Annotated[
    str | None,
    typer.Option(
        "--cluster-by",
        metavar="COLUMN|none",
        help="What intervals draw together; default the column of prompts (rlcorr help intervals).",
        autocompletion=completion.columns,
        rich_help_panel=READING,
    ),
]
BatchBy = Annotated[
    str | None,
    typer.Option(
        "--batch-by",
        metavar="COLUMN",
        help="What a training batch is, for --normalize batch and budgets: a column (default step, if there), or none.",
        autocompletion=completion.columns,
        rich_help_panel=READING,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "--limit",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        help="Read only the first N rows.",
        rich_help_panel=READING,
    ),
]
OnBadRow = Annotated[
    BadRowAction,
    typer.Option(
        "--on-bad-row",
        help="Stop at the first, leave them out, or also write them to --quarantine.",
        rich_help_panel=READING,
    ),
]
Quarantine = Annotated[
    str | None,
    typer.Option(
        "--quarantine",
        metavar="PATH",
        help="Where bad rows go, with the reason: .jsonl for JSON lines, else .parquet.",
        rich_help_panel=READING,
    ),
]
MaxBadFraction = Annotated[
    float | None,
    typer.Option(
        "--max-bad-fraction",
        min=0,
        max=1,
        metavar="SHARE",
        help="Stop if a larger share of the rows than this is bad: default 0 with error, else 0.5.",
        rich_help_panel=READING,
    ),
]
Nonfinite = Annotated[
    NonfiniteAction,
    typer.Option(
        "--nonfinite",
        help="A value that is not finite on a valid token: its row is bad, the token is cleared, or, where only the "
        "rollout log-prob is null or NaN, it is kept at ratio 1, as TRL does.",
        rich_help_panel=READING,
    ),
]
PresetName = Annotated[
    str | None,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="A named plan: token_is, seq_is, geo_rs, slime_mis, trl_sequence_mask, ...; `rlcorr presets` lists all.",
        autocompletion=completion.presets,
        rich_help_panel=PLAN,
    ),
]
PlanPath = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE",
        help="A plan, or with --profile a framework's config (TOML, YAML, JSON).",
        rich_help_panel=PLAN,
    ),
]
ProfileName = Annotated[
    str,
    typer.Option(
        "--profile",
        metavar="NAME",
        help="canonical, or a framework's own numbers: verl-mismatch, verl-0.6, verl-0.7, verl-0.8, verl-0.9, slime.",
        autocompletion=completion.profiles,
        rich_help_panel=PLAN,
    ),
]
WeightScopeName = Annotated[
    WeightScope | None, typer.Option("--is", help="IS weights, by what ratio.", rich_help_panel=PLAN)
]
IsHigh = Annotated[float | None, typer.Option("--is-high", help="Upper bound of the weights.", rich_help_panel=PLAN)]
IsLow = Annotated[float | None, typer.Option("--is-low", help="Lower bound of the weights.", rich_help_panel=PLAN)]
Outside = Literal["clamp", "zero"]
IsOutside = Annotated[
    Outside | None, typer.Option("--is-outside", help="What weights outside the bounds become.", rich_help_panel=PLAN)
]
NormalizeBy = Annotated[
    Normalize | None, typer.Option("--normalize", help="Divide weights by their batch mean.", rich_help_panel=PLAN)
]
Rs = Annotated[
    list[str] | None,
    typer.Option(
        "--rs",
        metavar="STAT.SCOPE:LOW,HIGH",
        help="A rejection, such as ratio.seq_mean:0.999,1.001 or k3.token:,0.01. STAT: `rlcorr explain statistics`; "
        f"SCOPE: {', '.join(SCOPES)}. Repeatable.",
        autocompletion=completion.rejections,
        rich_help_panel=PLAN,
    ),
]
Veto = Annotated[
    float | None,
    typer.Option("--veto", help="Reject sequences with a token ratio below this, such as 1e-4.", rich_help_panel=PLAN),
]
ExtremeRatio = Annotated[
    float,
    typer.Option(
        "--extreme-ratio", help="A token beyond this ratio, or its inverse, is extreme.", rich_help_panel=PLAN
    ),
]
PpoClip = Annotated[
    float, typer.Option("--ppo-clip", help="PPO's epsilon, for the drift from old to current.", rich_help_panel=PLAN)
]
RulesPath = Annotated[
    str | None,
    typer.Option(
        "--rules", metavar="FILE", help="Rules in TOML, YAML or JSON: see `rlcorr help ci`.", rich_help_panel=RULES
    ),
]
Max = Annotated[
    list[str] | None,
    typer.Option(
        "--max",
        metavar="METRIC=N",
        help="Fail above this, such as kl=0.1; `rlcorr explain metrics` lists them. Repeatable.",
        autocompletion=completion.limited_metrics,
        rich_help_panel=RULES,
    ),
]
Min = Annotated[
    list[str] | None,
    typer.Option(
        "--min",
        metavar="METRIC=N",
        help="Fail below this, such as seq_ess=0.3. Repeatable.",
        autocompletion=completion.limited_metrics,
        rich_help_panel=RULES,
    ),
]
Baseline = Annotated[
    str | None,
    typer.Option(
        "--baseline",
        metavar="REPORT",
        help="The saved report that --max-increase and --max-decrease compare with.",
        rich_help_panel=RULES,
    ),
]
MaxIncrease = Annotated[
    list[str] | None,
    typer.Option(
        "--max-increase",
        metavar="METRIC=N[%]",
        help="Fail where it rose by more, such as kl=20% or kl=0.01. Repeatable.",
        autocompletion=completion.limited_metrics,
        rich_help_panel=RULES,
    ),
]
MaxDecrease = Annotated[
    list[str] | None,
    typer.Option(
        "--max-decrease",
        metavar="METRIC=N[%]",
        help="Fail where it fell by more, such as seq_ess=10%. Repeatable.",
        autocompletion=completion.limited_metrics,
        rich_help_panel=RULES,
    ),
]
FailOns = Annotated[
    list[str] | None,
    typer.Option(
        "--fail-on",
        metavar="<anomaly|moved|far|outliers|cause>",
        help="anomaly: fail on an anomaly of whole files (`rlcorr explain shifted_columns`), or on a mean ratio that "
        "cannot be. moved (takes advantages), far, outliers: fail on such a gap (`rlcorr explain compare`). cause: "
        "fail on a cause that `rlcorr diagnose` names, but noise; reads the dump twice. Repeatable.",
        autocompletion=completion.fail_on,
        rich_help_panel=RULES,
    ),
]
Strict = Annotated[bool, typer.Option("--strict", help="Warnings and anomalies fail, too.", rich_help_panel=RULES)]
Seed = Annotated[int, _seed("Seed of the bootstrap intervals.", COMPUTING)]
Json = Annotated[bool, typer.Option("--json", help="The report as JSON on stdout.", rich_help_panel=OUTPUT)]
Outputs = Annotated[
    list[str] | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help=f"Also write the report to FILE: {', '.join(FORMS)}; .tb is for TensorBoard. Repeatable.",
        rich_help_panel=OUTPUT,
    ),
]
Picture = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The picture: .png, .svg or .pdf; or a directory for one each.",
        rich_help_panel=OUTPUT,
    ),
]
KindName = Annotated[
    list[str] | None,
    typer.Option(
        "--kind",
        metavar="KIND",
        help=f"{KINDS[0]} (the default), {', '.join(KINDS[1:-1])} or {KINDS[-1]}. Repeatable.",
        autocompletion=completion.kinds,
        rich_help_panel=OUTPUT,
    ),
]
ByStep = Annotated[
    bool,
    typer.Option(
        "--by-step",
        help="Pictures of the log-ratio have a curve for each step, or value of --group-by.",
        rich_help_panel=OUTPUT,
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help=f"The corrected dataset: {', '.join(WRITTEN)}, or a directory of parts.",
        rich_help_panel=OUTPUT,
    ),
]
Rejected = Annotated[
    Literal["drop", "keep"],
    typer.Option("--rejected", help="Rows without a token left; kept, their mask is all 0.", rich_help_panel=OUTPUT),
]
RejectedOutput = Annotated[
    str | None,
    typer.Option("--rejected-output", metavar="PATH", help="Write dropped rows here.", rich_help_panel=OUTPUT),
]
RowsPerFile = Annotated[
    int,
    typer.Option(
        "--rows-per-file",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        help="Of a directory's parts.",
        rich_help_panel=OUTPUT,
    ),
]
Resample = Annotated[
    int | None,
    typer.Option(
        "--resample",
        min=1,
        max=MOST_ROWS,
        metavar="N",
        help="Draw N rows in proportion to their weights, instead of writing weights.",
        rich_help_panel=OUTPUT,
    ),
]
DrawSeed = Annotated[int, _seed("Seed of --resample.", OUTPUT)]
WriteUnusedWeights = Annotated[
    bool,
    typer.Option(
        "--write-unused-weights",
        help="Write weights even where the plan's loss takes none (PPO in bypass mode).",
        rich_help_panel=OUTPUT,
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.", rich_help_panel=OUTPUT)]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Write nothing; say what would be kept.", rich_help_panel=OUTPUT)
]
Junit = Annotated[
    str | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit XML to FILE.", rich_help_panel=OUTPUT)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.", rich_help_panel=OUTPUT)]
# `--debug` is looked for by `main`, because parsing may fail before a command begins; commands take it to have it in
# their help, and do nothing with it.
Debug = Annotated[
    bool,
    typer.Option("--debug", help="Say how it is read; show errors' tracebacks.", rich_help_panel=OUTPUT),
]
