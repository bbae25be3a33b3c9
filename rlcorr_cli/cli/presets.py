"""`rlcorr presets`: the named plans by framework; those of one framework, or one preset with its plan file, by name."""

from typing import Annotated

import typer

from rlcorr_cli.cli import completion
from rlcorr_cli.cli import options as o


def presets(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A preset, shown with its plan file; or a framework: verl, slime, trl, nemo, openrlhf, ...",
            autocompletion=completion.preset_words,
            show_default=False,
        ),
    ] = None,
    # `rlcorr presets show NAME` and `rlcorr presets NAME` are the same.
    shown: Annotated[
        str | None,
        typer.Argument(metavar="", hidden=True, autocompletion=completion.presets),
    ] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """List named corrections by framework, or show one with its plan."""
    if name == "show" or shown is not None:
        name = _shown(name, shown)
    if json:
        from rlcorr_cli.show.presets import print_presets_json

        print_presets_json(name)
        return
    from rlcorr_cli.show.presets import print_presets

    print_presets(name)


def _shown(action: str | None, name: str | None) -> str:
    """The preset that `show NAME` names."""
    from rlcorr_cli.errors import UsageError

    if action != "show" or name is None:
        message = "`rlcorr presets` takes one name." if name else "`rlcorr presets show` names no preset."
        raise UsageError(message, "Write `rlcorr presets NAME`.")
    return name
