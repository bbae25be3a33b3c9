"""`rlcorr help`: the pages of the manual."""

from typing import Annotated

import typer

from rlcorr_cli.cli import completion
from rlcorr_cli.cli import options as o


def help(
    page: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAGE]",
            help="A page of the manual; without one, what there is.",
            autocompletion=completion.pages,
        ),
    ] = None,
    debug: o.Debug = False,
) -> None:
    """Show a page of the manual, or list the pages."""
    from rlcorr_cli.show.pages import print_page, print_pages

    if page is None:
        print_pages()
    else:
        print_page(page)
