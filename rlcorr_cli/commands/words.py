"""What flags are called in Python: messages inside the package name flags, and the API says them as arguments.

FLAGS is the one table.  A new option that messages name is a row of it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from rlcorr_cli.errors import RlcorrError

P = ParamSpec("P")
R = TypeVar("R")

NUMBER = r"-?[\d.]*\d(?:e-?\d+)?\b"
WORD = r"[A-Z]+\b"
PAIR = r"[^\s=]+=[^\s,;:]*[^\s,;:.]"


@dataclass(frozen=True)
class Flag:
    """argument: its name in Python.  value: what a value beside the flag looks like.  written: the argument with that
    value, of which `{value}` is the text, or `{key}` and `{amount}` what stands before and after its '='."""

    argument: str
    value: str | None = None
    written: str = '{argument}="{value}"'


def _number(argument: str) -> Flag:
    return Flag(argument, NUMBER, "{argument}={value}")


def _pair(argument: str) -> Flag:
    return Flag(argument, PAIR, '{argument}={{"{key}": {amount}}}')


FLAGS: dict[str, Flag] = {
    "--format": Flag("format", r"[a-z][\w-]*\w"),
    "--map": Flag("columns", PAIR, '{argument}={{"{key}": "{amount}"}}'),
    "--mode": Flag("mode", r"decoupled\b|bypass\b"),
    "--cluster-by": Flag("cluster_by", rf"none\b|{WORD}"),
    "--group-by": Flag("group_by", rf"step\b|{WORD}"),
    "--by-step": Flag("by_step=True"),
    "--batch-by": Flag("batch_by", rf"none\b|{WORD}"),
    "--limit": _number("limit"),
    "--on-bad-row": Flag("bad_rows", r"error\b|skip\b|quarantine\b", '{argument}=BadRowPolicy("{value}")'),
    "--quarantine": Flag(
        "bad_rows", r"\S+\.(?:parquet|jsonl)", '{argument}=BadRowPolicy("quarantine", Path("{value}"))'
    ),
    "--max-bad-fraction": Flag("BadRowPolicy.max_fraction", NUMBER, "{argument} {value}"),
    "--nonfinite": Flag("bad_rows", r"error\b|mask\b|keep\b", '{argument}=BadRowPolicy(nonfinite="{value}")'),
    "--preset": Flag("plan", r"[a-z]\w*_\w+"),
    "--plan": Flag("plan", r"\S+\.(?:toml|yaml|json)"),
    "--profile": Flag("profile", r"canonical\b|verl-[\w.-]*\w|slime\b"),
    "--is": Flag("is_scope", r"token\b|sequence\b|geometric\b"),
    "--is-high": _number("is_high"),
    "--is-low": _number("is_low"),
    "--is-outside": Flag("is_outside", r"clamp\b|zero\b"),
    "--normalize": Flag("normalize", r"none\b|batch\b"),
    "--rs": Flag("rs", r"[a-z]\w*\.\w+:\S*[^\s,;:.]"),
    "--veto": _number("veto"),
    "--extreme-ratio": _number("extreme_ratio"),
    "--ppo-clip": _number("ppo_clip"),
    "--objective": Flag("objective", r"auto\b|ppo\b|reinforce\b|gspo\b|cispo\b"),
    "--clip-low": _number("clip_low"),
    "--clip-high": _number("clip_high"),
    "--dual-clip": _number("dual_clip"),
    "--loss-agg": Flag("aggregation", r"token-mean\b|seq-mean-[a-z-]+[a-z]"),
    "--loss-constant": _number("loss_constant"),
    "--loss-denominator": Flag("denominator", r"kept\b|all\b"),
    "--max": _pair("at_most"),
    "--min": _pair("at_least"),
    "--junit": Flag("junit", r"\S+\.xml"),
    "--baseline": Flag("baseline", r"\S+\.json"),
    "--max-increase": Flag("max_increase", PAIR, '{argument}={{"{key}": "{amount}"}}'),
    "--max-decrease": Flag("max_decrease", PAIR, '{argument}={{"{key}": "{amount}"}}'),
    "--fail-on": Flag("fail_on", r"anomaly\b|moved\b|far\b|outliers\b|cause\b"),
    "--min-effect": _number("min_effect"),
    "--all": Flag("everything=True"),
    "--strict": Flag("strict=True"),
    "--rules": Flag("rules", r"\S+\.(?:toml|yaml|json)"),
    "--by": Flag("by", r"k3\b|abs_log_ratio\b|seq_log_ratio\b"),
    "--worst": _number("worst"),
    "--row": Flag("row"),
    "--kind": Flag("kinds"),
    "--join": Flag("join", r"\S+\.(?:parquet|jsonl)"),
    "--on": Flag("on", r"[a-z]\w*(?:,[a-z]\w*)*"),
    "--device": Flag("device", r"auto\b|cpu\b|torch\b|cuda(?::\d+)?"),
    "--batch-tokens": _number("batch_tokens"),
    "--engine": Flag("engine", r"auto\b|threads\b|processes\b|ray\b"),
    "--workers": _number("workers"),
    "--ray-address": Flag("ray_address"),
    "--threads": _number("threads"),
    "--seed": _number("seed"),
    "--output": Flag("output"),
    "-o": Flag("output"),
    "--rejected": Flag("keep_rejected", r"keep\b", "{argument}=True"),
    "--rejected-output": Flag("rejected_output"),
    "--rows-per-file": _number("rows_per_file"),
    "--resample": _number("resample"),
    "--write-unused-weights": Flag("write_unused_weights"),
    "--coef": Flag("objective"),
    "--coef-normalized": Flag("coef_normalized"),
    "--overwrite": Flag("overwrite"),
    "--bound": Flag("bound", r"low\b|high\b"),
    "--side": Flag("side", r"both\b|low\b|high\b"),
    "--target-keep": _number("target_keep"),
    "--target-ess": _number("target_ess"),
    "--allow-overlap": Flag("allow_overlap=True"),
    "--dry-run": Flag("output=None"),
}
"""Flag -> how Python says it."""

COMMANDS: dict[str, str] = {
    "rlcorr convert DUMP --join SCORED --on group_id,choice -o dump.parquet": "convert(dumps, "
    '"dump.parquet", join=scored, on=("group_id", "choice"))',
    "rlcorr convert DUMP --join SCORED --on step,sample_id -o dump.parquet": "convert(dumps, "
    '"dump.parquet", join=scored, on=("step", "sample_id"))',
    "`rlcorr inspect DUMP --worst 5`": "`inspect(dumps, worst=5)`",
    "`rlcorr inspect DUMP`": "`inspect(dumps)`",
    "`rlcorr analyze DUMP -o report.json`": '`save(analyze(dumps, pictures=True), "report.json")`',
}
"""Whole commands that messages name -> the calls that do the same."""

_FLAG = re.compile(r"(?<![\w-])(?P<flag>--[a-z][a-z-]*[a-z]|-o)(?![\w-])")


def as_arguments(text: str) -> str:
    """A message with its flags said as arguments: 'Use --device cpu.' -> 'Use device="cpu".'"""
    for command, call in COMMANDS.items():
        text = text.replace(command, call)
    words: list[str] = []
    end = 0
    for match in _FLAG.finditer(text):
        flag = FLAGS.get(match["flag"])
        if flag is None or match.start() < end:
            continue
        value = None if flag.value is None else re.compile(rf"[ =](?P<value>{flag.value})").match(text, match.end())
        words += [text[end : match.start()], flag.argument if value is None else _written(flag, value["value"])]
        end = match.end() if value is None else value.end()
    return "".join((*words, text[end:]))


def _written(flag: Flag, value: str) -> str:
    key, _, amount = value.partition("=")
    return flag.written.format(argument=flag.argument, value=value, key=key, amount=amount)


def speaks_of_arguments(function: Callable[P, R]) -> Callable[P, R]:
    """The function with errors that speak of arguments; the command line has them back as they were raised."""

    @wraps(function)
    def speaking(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except RlcorrError as error:
            error.word(as_arguments)
            raise

    return speaking
