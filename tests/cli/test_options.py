"""Options: choices in help and refused with the nearest, one home of defaults, flags that messages name, `--json`."""

import ast
import contextlib
import inspect
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from running import BF16, refused, run

import rlcorr_cli
from rlcorr_cli import api
from rlcorr_cli.commands import app, main
from rlcorr_cli.commands.declared import Opt, options
from rlcorr_cli.commands.typed import options_of
from rlcorr_cli.errors import RlcorrError, UsageError, as_arguments, as_flags
from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.reading.formats import NAMES

PACKAGE = Path(rlcorr_cli.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b")
ELSEWHERE = ("commands", "show", "presets.py", "preset_configs.py", "layouts")
"""Parts of the package whose texts the API does not raise, or that name the flags of other tools."""


COMMANDS: Any = app.built()
OPTIONS = [(command, option) for command in app.COMMANDS for option in options_of(app.function(command)).values()]
CHOICES = [
    (command, option.flags[0], option.choices)
    for command, option in OPTIONS
    if option.choices and option.name != "fail_on"  # whose value may be several
]
"""Command, option, its choices."""


def real_options() -> set[str]:
    return {name for command in COMMANDS.commands.values() for option in command.params for name in option.opts}


def texts(module: Path) -> set[str]:
    """The strings of a module but for its docstrings."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    strings = {node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    docs = {node.value for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    return {str(node.value) for node in strings - docs}


def named_flags() -> set[str]:
    modules = [m for m in PACKAGE.rglob("*.py") if not {*m.relative_to(PACKAGE).parts} & {*ELSEWHERE}]
    return {flag for module in modules for text in texts(module) for flag in FLAG.findall(text)}


def test_every_flag_that_texts_name_is_an_option() -> None:
    named = named_flags()
    assert {"--is", "--rs", "--clean-dump", "--group-by"} <= named
    flags = {flag for _, option in OPTIONS for flag in option.flags}
    assert named <= flags <= real_options()


def test_every_option_that_an_error_names_is_one_of_a_command_and_on_where_it_takes_no_value() -> None:
    sources = [text for module in PACKAGE.rglob("*.py") if module.name != "errors.py" for text in texts(module)]
    named = {match for text in sources for match in re.findall(r"⟦([a-z_]+)(?: (True))?(?=[ ⟧])", text)}
    switches = {option.name: option.typed is bool for _, option in OPTIONS}
    assert {("map", ""), ("device", ""), ("output", ""), ("force", "True")} <= named
    assert {name: on == "True" for name, on in sorted(named)}.items() <= switches.items()
    assert {as_flags(f"⟦{name}⟧") for name, _ in named} <= {flag for _, option in OPTIONS for flag in option.flags}
    assert {name for text in sources for name in re.findall(r"⟦(\w+)\(", text)} <= {*app.COMMANDS}


def test_every_option_is_an_argument_of_the_api() -> None:
    functions = [value for value in (getattr(api, name) for name in api.__all__) if inspect.isfunction(value)]
    taken = {name for function in functions for name in inspect.signature(function).parameters}
    assert {
        option.name for command in app.COMMANDS for option in options(app.function(command)) if option.flags
    } <= taken


@pytest.mark.parametrize(
    ("text", "flags", "arguments"),
    [
        ("Use ⟦device cpu⟧.", "Use --device cpu.", 'Use device="cpu".'),
        ("Use ⟦map⟧ to name it.", "Use --map to name it.", "Use map to name it."),
        ("⟦map response_mask=COLUMN⟧.", "--map response_mask=COLUMN.", 'map={"response_mask": "COLUMN"}.'),
        ("Try ⟦on_bad_row skip⟧, or", "Try --on-bad-row skip, or", 'Try on_bad_row="skip", or'),
        ("⟦is_ token:,2:zero⟧.", "--is token:,2:zero.", 'is_="token:,2:zero".'),
        ("⟦max_bad_fraction 0.01⟧: x", "--max-bad-fraction 0.01: x", "max_bad_fraction=0.01: x"),
        ("⟦veto 1e-4⟧.", "--veto 1e-4.", "veto=1e-4."),
        ("such as ⟦max kl=0.1⟧.", "such as --max kl=0.1.", 'such as max={"kl": 0.1}.'),
        ("⟦map reward=my column⟧.", "--map reward=my column.", 'map={"reward": "my column"}.'),
        ("⟦max kl=1e+06⟧.", "--max kl=1e+06.", 'max={"kl": 1e+06}.'),
        ("⟦max_increase k3_kl=20%⟧.", "--max-increase k3_kl=20%.", 'max_increase={"k3_kl": "20%"}.'),
        ("another place with ⟦output⟧.", "another place with -o.", "another place with output."),
        ("⟦force True⟧ writes it.", "--force writes it.", "force=True writes it."),
        ("⟦where 'step=4'⟧", "--where 'step=4'", "where='step=4'"),
        ('⟦where "a = 1"⟧', '--where "a = 1"', 'where="a = 1"'),
        ("`⟦inspect(DUMP)⟧` says it.", "`rlcorr inspect DUMP` says it.", "`inspect(dumps)` says it."),
        ("`⟦diff(A, B)⟧ ⟦output d.png⟧`", "`rlcorr diff A B -o d.png`", '`diff(A, B, output="d.png")`'),
        ("⟦objective ppo⟧ ⟦mode bypass⟧", "--objective ppo --mode bypass", 'objective="ppo" mode="bypass"'),
        ("⟦Rapport⟧, ⟦⟧, --mode", "⟦Rapport⟧, ⟦⟧, --mode", "⟦Rapport⟧, ⟦⟧, --mode"),
    ],
)
def test_an_option_in_an_error_is_a_flag_or_an_argument(text: str, flags: str, arguments: str) -> None:
    error = RlcorrError(text, text)
    assert (f"{error}", error.message, error.hint) == (flags, flags, flags)
    assert (as_flags(text), as_arguments(text)) == (flags, arguments)


def test_defaults_of_options_are_those_of_the_api() -> None:
    for command, function in (("analyze", api.analyze), ("filter", api.filter), ("check", api.check)):
        arguments = inspect.signature(function).parameters
        shared = [option for option in COMMANDS.commands[command].params if option.name in arguments]
        assert len(shared) >= 6
        for option in shared:
            default = arguments[option.name].default
            if option.name not in ("dumps", "source", "output"):
                assert (option.default or None) == (default or None), option.name


def test_choices_are_in_help_all_and_a_wrong_one_is_refused_with_the_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert {option for _, option, _ in CHOICES} == {
        "--mode", "--on-bad-row", "--nonfinite", "--above-zero", "--normalize", "--rejected", "--coef",
        "--objective", "--loss-agg", "--sort", "--engine", "--expect",
    }  # fmt: skip
    pages = {command: run(command, "--help-all").out for command in {command for command, _, _ in CHOICES}}
    for command, option, choices in CHOICES:
        assert f"{option}<{'|'.join(choices)}>" in re.sub(r"\s", "", pages[command]), option
        ran = run(command, BF16, option, f"{choices[0]}x")
        refused(ran, 2, f"{option} must be one of {', '.join(choices)}, got '{choices[0]}x'.", f"Try {choices[0]}.")


TEXT_OPTIONS = [
    (command, option.flags[-1])
    for command, option in OPTIONS
    if option.flags and option.typed in (str, str | None, list[str] | None)
]


def test_an_empty_text_is_refused_by_every_option() -> None:
    assert {option for _, option in TEXT_OPTIONS} >= {"--preset", "--plan", "--profile", "--group-by", "--rules", "-o"}
    for command, option in TEXT_OPTIONS:
        dumps = [BF16] * (2 if command == "diff" else 1)
        refused(run(command, *dumps, option, ""), 2, f"{option} is empty: is a variable unset?")


TYPED = [
    *("", "1", "-3", "+3", "1.5", "1.", "3.", ".5", "-.5", "1e3", "1E-3", "1_000", "nan", "inf", "1e999", "-0"),
    *("low", "both", "true", "x=y", "0x10", "--1", "e", "-", "+", "0012", "9" * 30, "9" * 5000),
]


NUMBERS = [
    option for _, option in OPTIONS if not option.choices and option.typed in (int, int | None, float, float | None)
]


@pytest.mark.parametrize("text", TYPED)
def test_a_number_that_is_typed_is_one_within_its_bounds_or_is_refused(text: str) -> None:
    assert len(NUMBERS) > 50
    for option in NUMBERS:
        value = option.parsed(text)
        assert isinstance(option.by, Opt)
        least, most = option.by.least, option.by.most
        is_number = isinstance(value, int | float)
        if is_number and (least is None or value >= least) and (most is None or value <= most):
            option.refuse_wrong(value)
            assert repr(value) == repr(type(value)(text))
        else:
            with pytest.raises(UsageError, match=f"^{option.flags[0]} should be a (whole )?number"):
                option.refuse_wrong(value)


def test_an_empty_name_of_a_dump_is_refused() -> None:
    for command in ("analyze", "filter", "plot", "check", "inspect"):
        refused(run(command, ""), 2, "The name of the dump is empty: is a variable unset?")
    refused(run("analyze", BF16, ""), 2, "The name of the dump is empty: is a variable unset?")


def test_choices_are_those_of_the_code() -> None:
    (format_option,) = (option for option in COMMANDS.commands["analyze"].params if option.name == "format")
    assert re.findall(r"[\w-]+", format_option.help.split(": ")[1]) == ["auto", *NAMES]
    (profile,) = (option for option in COMMANDS.commands["analyze"].params if option.name == "profile")
    assert re.findall(r"[\w.-]*\w", profile.help.split(": ")[1]) == list(PROFILES)


@pytest.mark.parametrize(
    ("args", "is_json"),
    [
        (("analyze", "none.parquet", "--json"), True),
        (("analyze", "--json", "none.parquet"), True),
        (("analyze", "none.parquet", "--map", "--json"), False),
        (("analyze", "none.parquet", "--map", "x=--json"), False),
        (("analyze", "none.parquet", "-o", "--json"), False),
        (("analyze", "--", "none.parquet", "--json"), False),
        (("analyze", "none.parquet", "--map=x", "--json"), True),
        (("analyze", "none.parquet", "--quiet", "--json"), True),
        (("analyze", "none.parquet", "--presset", "--json"), True),
    ],
)
def test_only_the_flag_itself_asks_for_json(args: tuple[str, ...], is_json: bool) -> None:
    ran = run(*args)
    assert ran.status in (2, 3)
    assert ran.err.startswith('{"error"') == is_json, ran.err


def test_the_value_of_an_option_does_not_ask_for_a_traceback() -> None:
    assert "Traceback" not in run("analyze", "none.parquet", "--map", "x=y", "--plan", "--debug").err
    assert "Traceback" in run("analyze", "none.parquet", "--debug").err


def outcome(path: Callable[[list[str]], int | None], args: tuple[str, ...]) -> tuple[int | None, str]:
    """The status and the output of one way into a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            return path(list(args)), out.getvalue()
        except RlcorrError as error:
            return error.exit_status, f"{error.message} {error.hint}"


@pytest.mark.parametrize(
    "args",
    [("presets",), ("explain", "kl"), ("explain", "klx"), ("explain", "--schema"), ("explain", "--schema", "check")],
    ids=" ".join,
)
def test_the_fast_path_prints_what_the_app_prints(args: tuple[str, ...]) -> None:
    fast = outcome(main.fast_path, args)
    assert fast == outcome(main.parsed, args)
    assert fast[0] == (2 if "klx" in args else 0)
    assert len(fast[1]) > 30


def test_an_error_on_the_command_line_names_flags_though_the_api_names_arguments() -> None:
    args = ("analyze", BF16, "--map", "old_log_probs=nothing")
    refused(run(*args), 2, "--map old_log_probs=nothing: there is no column")
    assert "--map" in json.loads(run(*args, "--json").err)["error"]["message"]
    assert "UsageError: --map old_log_probs=nothing" in run(*args, "--debug").err
