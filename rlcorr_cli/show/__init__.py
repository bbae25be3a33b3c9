"""What people and other programs see of a result: every result has one Document, and every form one renderer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcorr_cli.show.document import Document

DOCUMENTS = {
    "Report": "report",
    "Comparison": "compare",
    "Sweep": "sweep",
    "DiagnosedDump": "diagnose",
    "Inspected": "inspect",
    "TokenRows": "token_rows",
    "Filtered": "written",
    "Converted": "written",
    "Checked": "check",
    "Watched": "watch",
    "LoggedScalars": "scalars",
    "Diff": "diff",
}
"""The class of a result -> the module here whose `document` makes its Document; imported when it is used."""


def document_of(result: Any) -> "Document":
    """What a result says."""
    made: Document = import_module(f"rlcorr_cli.show.{DOCUMENTS[type(result).__name__]}").document(result)
    return made


def print_result(result: Any) -> None:
    """Print a result on stdout, for people."""
    from rlcorr_cli.show.terminal import print_document

    print_document(document_of(result))
