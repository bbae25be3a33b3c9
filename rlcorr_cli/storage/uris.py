"""What a person typed for a place, made into a path of the disk or a URI of a store that is known."""

import re
from pathlib import Path
from urllib.parse import unquote

from rlcorr_cli.errors import UsageError, shortened
from rlcorr_cli.places import Uri, UriPath, scheme
from rlcorr_cli.storage.services import SERVICES, uri_parts

QUERY = re.compile(r"\?((?:[a-z_]+=[^&=?*]*&)*[a-z_]+=[^&=?*]*)$")
"""The end of a URI that says more of the store; a lone `?` is a wildcard."""
SECRETS = re.compile(r"//[^/]*:[^/]*@|[?&](?:[a-z_]*(?:key|token|secret|password|sas)[a-z_]*|sig)=")


def located(typed: str) -> str:
    """A path as it is; of `file:///path` the path; of another URI the Uri, without its query and a last `/`."""
    kind = scheme(typed)
    if not kind or isinstance(typed, Uri):
        return typed
    if kind == "file":
        return _path(typed)
    if kind not in SERVICES:
        known = ", ".join(f"{name}://" for name in ("file", *SERVICES))
        fetch = " What lies behind a web address: fetch it first (`curl -O URL`)." if kind in ("http", "https") else ""
        raise UsageError(
            f"{shortened(typed)} is not a place that rlcorr reads or writes.", f"Known are {known}.{fetch}"
        )
    if SECRETS.search(typed):
        raise UsageError(
            f"A URI of {kind}:// holds a password or a key, which reports and logs would show.",
            f"Put it into variables: {', '.join(SERVICES[kind].secrets) or 'as your store has them'}.",
        )
    query = QUERY.search(typed)
    text = typed[: query.start()] if query else typed
    _, _, rest = text.partition("://")
    if not rest.strip("/") or (rest.startswith("/") and kind not in ("hdfs", "viewfs")):
        raise UsageError(f"{shortened(typed)} names no {SERVICES[kind].place}.", f"Write {SERVICES[kind].example}.")
    return Uri(f"{kind}://{rest.rstrip('/')}", query[1] if query else "")


def output_path(option: str, typed: str | Path) -> Path:
    """The path of an output, which may be a URI; Path makes // one /, and so does this."""
    start, colon, rest = str(typed).partition(":/")
    if not colon or not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]+", start):
        return Path(typed)
    place = located(f"{start}://{'/' if start.lower() == 'file' else ''}{rest.lstrip('/')}")
    if not isinstance(place, Uri):
        return Path(place)
    if place.query:
        what = f"{option} takes a URI without a query, not ?{place.query}."
        raise UsageError(what, f"Say it by variables: {', '.join(SERVICES[scheme(place)].variables)}.")
    if not uri_parts(place)[2]:
        raise UsageError(f"{option} names no file in {place}.", f"Write {place}/NAME.")
    return UriPath(place)


def _path(typed: str) -> str:
    path = unquote(typed[len("file://") :])
    if not path.startswith("/"):
        raise UsageError(f"{shortened(typed)} names another machine.", "Write file:///path, or the path alone.")
    return path
