"""`rlcorr presets`: the named plans and their records; `rlcorr presets show NAME`: one, with its plan file."""

from typing import Annotated

import typer

from rlcorr_cli.cli import options as o


def presets(
    action: Annotated[
        str | None, typer.Argument(metavar="[show]", help="show: print one preset and its plan file.")
    ] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The preset to show.")] = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """List the presets with their records, and when to take each."""
    if action is not None:
        from rlcorr_cli.errors import UsageError
        from rlcorr_cli.present.terminal.presets import print_preset

        if action != "show" or name is None:
            raise UsageError(f"`rlcorr presets {action}` is not a command.", "Write `rlcorr presets show NAME`.")
        print_preset(name)
        return
    if json:
        from rlcorr_cli.plans.presets import PRESETS
        from rlcorr_cli.present.stdout import emit_json

        rows = [
            {**p.plan.to_dict(), "aliases": p.aliases, "when": p.when, "source": p.source} for p in PRESETS.values()
        ]
        emit_json(rows)
        return
    from rlcorr_cli.present.terminal.presets import print_presets

    print_presets()
