"""`presets`, `explain` and `help`: what there is to know by name, in text."""

from typing import Annotated

from rlcorr_cli.commands import completion
from rlcorr_cli.commands.arguments import Json
from rlcorr_cli.commands.declared import Opt


def page_offers() -> completion.Offers:
    """The manual's pages, and the commands."""
    from rlcorr_cli.commands.app import COMMANDS, summary
    from rlcorr_cli.show.pages import PAGES

    return completion.offers_of({**PAGES, **{name: summary(name) for name in COMMANDS if name not in PAGES}})


def presets(
    name: Annotated[
        str | None,
        Opt(
            help="A preset, shown with its plan file; or a framework: verl, slime, trl, nemo, openrlhf, ...",
            metavar="[NAME]",
            offers=completion.preset_words,
        ),
    ] = None,
    # `rlcorr presets show NAME` and `rlcorr presets NAME` are the same.
    shown: Annotated[str | None, Opt(help="", metavar="", hidden=True, offers=completion.presets)] = None,
    *,
    for_: Annotated[
        str | None,
        Opt(
            help="Print NAME, a preset or a plan file, as lines of this framework's config; without NAME, all that "
            "compare takes.",
            panel="Options",
            metavar="FRAMEWORK",
            offers=completion.writable_frameworks,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """List named corrections by framework, show one with its plan, or write one as a framework's config."""
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.show.presets import print_lines, print_presets, print_presets_json

    if shown is not None and name != "show":
        raise UsageError("`rlcorr presets` takes one name.", "Write `rlcorr presets NAME`.")
    if name == "show" and shown is None:
        raise UsageError("`rlcorr presets show` names no preset.", "Write `rlcorr presets NAME`.")
    if for_ is not None:
        if json:
            raise UsageError("`rlcorr presets --for` writes YAML.", "Leave --json out.")
        print_lines(name if shown is None else shown, for_)
        return
    (print_presets_json if json else print_presets)(name if shown is None else shown)


def explain(
    name: Annotated[
        str | None,
        Opt(
            help="A metric, preset, class of bad rows, cause or symbol: seq_ess, geo_rs, top_p.",
            metavar="[NAME]",
            offers=completion.explained,
        ),
    ] = None,
    *,
    schema: Annotated[
        bool,
        Opt(
            help="The JSON Schema of report, filter, check, inspect, row, diff, diagnose, compare, sweep, scalars, "
            "convert, plot, presets, parts (_rlcorr.json), error; or all.",
            panel="Options",
        ),
    ] = False,
) -> None:
    """Define any name that a report prints, or print a JSON Schema."""
    from rlcorr_cli.errors import UsageError
    from rlcorr_cli.show.explain import LISTS, print_explanation, print_schema

    if schema:
        print_schema(name)
    elif name is None:
        raise UsageError("`rlcorr explain` names nothing.", f"Write `rlcorr explain NAME`; {LISTS}")
    else:
        print_explanation(name)


def help(
    page: Annotated[
        str | None, Opt(help="A page of the manual, or a command.", metavar="[PAGE]", offers=page_offers)
    ] = None,
) -> None:
    """Show a page of the manual or the help of a command, or list the pages."""
    from rlcorr_cli.commands.app import COMMANDS, help_of
    from rlcorr_cli.show.pages import PAGES, print_page, print_pages
    from rlcorr_cli.show.stdout import emit

    if page is None:
        print_pages()
        return
    if page in COMMANDS:
        emit(help_of(page, full=False) + "\n" * (1 + (page in PAGES)))
    if page in PAGES or page not in COMMANDS:
        print_page(page, COMMANDS)
