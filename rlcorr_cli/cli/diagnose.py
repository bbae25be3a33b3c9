"""`rlcorr diagnose`: why the two policies of a dump differ."""

from collections.abc import Sequence
from typing import Annotated

import typer

from rlcorr_cli.cli import comparing_options as c
from rlcorr_cli.cli import completion
from rlcorr_cli.cli import options as o
from rlcorr_cli.cli.option_groups import ComputingOptions, ReadingOptions

COLUMNS = "step, policy_version, worker, data_source, finish_reason"


def diagnose(
    dumps: o.Dumps,
    *,
    read: ReadingOptions,
    compute: ComputingOptions,
    group_by: o.GroupBy = None,
    by: Annotated[
        list[str] | None,
        typer.Option(
            "--by",
            metavar="COLUMN",
            help=f"Look at the levels of this column, too, beside {COLUMNS} and the length. Repeatable.",
            autocompletion=completion.columns,
            rich_help_panel=o.READING,
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            "--fail-on",
            metavar="CAUSE,...",
            help="Exit with status 1 if the verdict, of the dump or of a group, is one of these causes; cause: any but "
            "noise. `rlcorr explain causes` lists them.",
            autocompletion=completion.causes,
            rich_help_panel=o.RULES,
        ),
    ] = None,
    json: o.Json = False,
    output: c.SheetOutputs = None,
    quiet: o.Quiet = False,
    debug: o.Debug = False,
) -> int:
    """Name the cause of a gap: its size, its evidence, and what to do."""
    from rlcorr_cli import api
    from rlcorr_cli.cli import shared
    from rlcorr_cli.show import print_result
    from rlcorr_cli.show.stdout import emit_json

    reading = read.arguments_of_rows("a diagnosis")
    names = _causes(fail_on or ())
    diagnosed = api.diagnose(
        dumps,
        group_by=group_by or (),
        by=by or (),
        output=output or (),
        watch=shared.watch(quiet),
        **reading,
        **compute.arguments(),
    )
    if json:
        emit_json(diagnosed.to_dict())
    else:
        print_result(diagnosed)
    return 1 if diagnosed.failing(names) else 0


def _causes(texts: Sequence[str]) -> list[str]:
    """The names in 'top_p,min_p'; one that is none is refused before the dump is read."""
    from rlcorr_cli.causes.table import ALL_CAUSES, ANY_CAUSE
    from rlcorr_cli.errors import not_one_of

    names = [name for text in texts for name in text.split(",")]
    for name in names:
        if name != ANY_CAUSE and name not in ALL_CAUSES:
            raise not_one_of("--fail-on", name, (ANY_CAUSE, *ALL_CAUSES))
    return names
