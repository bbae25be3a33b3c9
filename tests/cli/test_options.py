"""Options: choices in help and refused with the nearest, one home of defaults, flags that messages name, `--json`."""

import ast
import contextlib
import inspect
import io
import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from running import BF16, refused, run

import rlcorr_cli
from rlcorr_cli import api
from rlcorr_cli.commands import app, main
from rlcorr_cli.commands.python import all_flags, as_arguments
from rlcorr_cli.commands.typed import typed
from rlcorr_cli.errors import RlcorrError
from rlcorr_cli.frameworks.read import PROFILES
from rlcorr_cli.reading.formats import NAMES

PACKAGE = Path(rlcorr_cli.__file__).parent
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]\b")
ELSEWHERE = ("commands", "show", "presets.py", "preset_configs.py", "layouts")
"""Parts of the package whose texts the API does not raise, or that name the flags of other tools."""


def literal(annotation: Any) -> tuple[str, ...]:
    """The choices of an option's type, if it has any."""
    (kind, *_) = get_args(annotation)
    for member in (kind, *get_args(kind)):
        if get_origin(member) is Literal:
            return get_args(member)
    return ()


COMMANDS: Any = app.built()
CHOICES = [
    (command, COMMANDS.commands[command].params[i].opts[0], choices)
    for command in app.COMMANDS
    for i, parameter in enumerate(inspect.signature(typed(command, app.function(command))).parameters.values())
    if (choices := literal(parameter.annotation))
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


def test_every_flag_that_messages_name_is_an_option_and_has_an_argument() -> None:
    named = named_flags()
    assert {"--map", "--device", "--max-increase", "--on-bad-row"} <= named
    assert named - {"--json", "--quiet", "--debug"} <= set(all_flags())
    assert set(all_flags()) <= real_options()


def test_every_argument_in_the_table_is_one_of_the_api() -> None:
    functions = [value for value in (getattr(api, name) for name in api.__all__) if inspect.isfunction(value)]
    taken = {name for function in functions for name in inspect.signature(function).parameters}
    assert {option.name for option in all_flags().values()} <= taken


@pytest.mark.parametrize(
    ("flags", "arguments"),
    [
        ("Use --device cpu.", 'Use device="cpu".'),
        ("Use --map to name another column.", "Use map to name another column."),
        ("name it: --map response_mask=COLUMN.", 'name it: map={"response_mask": "COLUMN"}.'),
        ("Try --on-bad-row skip, or", 'Try on_bad_row="skip", or'),
        ("--is token:,2:zero.", 'is_="token:,2:zero".'),
        ("exceeds --max-bad-fraction 0.01: not_finite", "exceeds max_bad_fraction=0.01: not_finite"),
        ("--veto 1e-4.", "veto=1e-4."),
        ("such as --max kl=0.1.", 'such as max={"kl": 0.1}.'),
        ("For example --max-increase k3_kl=20%.", 'For example max_increase={"k3_kl": "20%"}.'),
        ("Name another place with -o.", "Name another place with output."),
        ("--resample draws rows", "resample draws rows"),
        (
            "--rejected keep leaves nothing for --rejected-output.",
            'rejected="keep" leaves nothing for rejected_output.',
        ),
        ("a pre--mode, --modes", "a pre--mode, --modes"),
    ],
)
def test_flags_are_said_as_arguments(flags: str, arguments: str) -> None:
    assert as_arguments(flags, all_flags()) == arguments


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
    (command, option.opts[-1])
    for command in app.COMMANDS
    for option, parameter in zip(
        COMMANDS.commands[command].params,
        inspect.signature(typed(command, app.function(command))).parameters.values(),
        strict=False,
    )
    if option.param_type_name == "option" and get_args(parameter.annotation)[0] in (str, str | None, list[str] | None)
]


def test_an_empty_text_is_refused_by_every_option() -> None:
    assert {option for _, option in TEXT_OPTIONS} >= {"--preset", "--plan", "--profile", "--group-by", "--rules", "-o"}
    for command, option in TEXT_OPTIONS:
        dumps = [BF16] * (2 if command == "diff" else 1)
        refused(run(command, *dumps, option, ""), 2, f"{option} is empty: is a variable unset?")


TYPED: list[Any] = [
    *("", "1", "-3", "+3", "1.5", "1.", "3.", ".5", "-.5", "1e3", "1E-3", "1_000", " 1", "nan", "inf", "1e999", "-0"),
    *("low", "both", "LOW", "error", "true", "x=y", "0x10", "--1", "e", "-", "+", "0012", "\u0663"),
    *("9" * 30, "9" * 400, None, 0, 1, 2.5, 100_000, True, b"x", (), [], ["a"], ("a", "b"), [""], [1]),
]


def test_a_value_taken_without_typer_is_what_typer_makes_of_it() -> None:
    """Values that need no checking are; all else goes to typer, which loads pydantic for it."""
    n_compared = 0
    for name, command in COMMANDS.commands.items():
        context = command.make_context(name, [], resilient_parsing=True)
        for option in command.params:
            for value in TYPED:
                taken = processed(option.process_value, context, value)
                by_typer = processed(partial(type(option).process_value, option), context, value)
                assert (repr(taken), type(taken)) == (repr(by_typer), type(by_typer)), (name, option.name, value)
                n_compared += 1
    assert n_compared > 10_000


def processed(process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    """What a parameter makes of a value, or the text of its refusal."""
    try:
        return process(context, value)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


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
