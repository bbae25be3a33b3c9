"""What a person typed for a place, made into a path of the disk or a URI of a store that is known."""

import re
from urllib.parse import unquote

from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.io.storage.refusals import SERVICES
from rlcorr_cli.places import Uri, scheme

QUERY = re.compile(r"\?((?:[a-z_]+=[^&=?*]*&)*[a-z_]+=[^&=?*]*)$")
"""The end of a URI that says more of the store; a lone `?` is a wildcard."""
SECRETS = re.compile(r"//[^/]*:[^/]*@|(?:key|token|secret|password|sas)[a-z_]*=")


def located(typed: str) -> str:
    """A path as it is; of `file:///path` the path; of another URI the Uri, without its query and a last `/`."""
    kind = scheme(typed)
    if not kind:
        return typed
    if kind == "file":
        return _path(typed)
    if kind not in SERVICES:
        known = ", ".join(f"{name}://" for name in ("file", *SERVICES))
        raise UsageError(f"{shortened(typed)} is no place that is read or written.", f"Known are {known}.")
    if SECRETS.search(typed):
        raise UsageError(
            f"A URI of {kind}:// holds a password or a key, which reports and logs would show.",
            f"Put it into variables: {', '.join(SERVICES[kind].secrets) or 'as your store has them'}.",
        )
    query = QUERY.search(typed)
    text = typed[: query.start()] if query else typed
    _, _, rest = text.partition("://")
    if not rest.strip("/") or (rest.startswith("/") and kind not in ("hdfs", "viewfs")):
        raise UsageError(f"{shortened(typed)} names no {SERVICES[kind].place}.", f"Write {kind}://PLACE/PATH.")
    return Uri(f"{kind}://{rest.rstrip('/')}", query[1] if query else "")


def _path(typed: str) -> str:
    path = unquote(typed[len("file://") :])
    if not path.startswith("/"):
        raise UsageError(f"{shortened(typed)} names another machine.", "Write file:///path, or the path alone.")
    return path
