"""The kinds of stores that URIs name, the variables that say which store is asked, as whom, and what goes wrong.

`located` makes a path of the disk or a URI of a store that is known of what a person typed for a place.  `StoreRequest`
is what was asked of a store, and `refused` finds the cause of its error: one message for each, with what was looked at.
Stores answer alike whoever is to blame: a request for a key says 404 without its bucket, and 403 or 301 without a word.
So a message names bucket, key and endpoint, and the variables that decide which store is asked.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

from rlcorr_cli.errors import DataError, UsageError, nearest, shortened
from rlcorr_cli.frozen import frozen
from rlcorr_cli.places import SECRETS, Uri, UriPath, scheme, without_secrets


@frozen(kw_only=True)
class Service:
    """A kind of store.  variables: that decide which one is asked, and as whom; of `secrets` no value is shown.

    place: what holds the files, in words.  endpoint: a variable that names the server, and `default` where it is else.
    example: a URI of this kind.  public: what to write for files that everyone may read.  unseen: why a place that is
    there may not be seen.
    """

    place: str
    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    endpoint: str
    default: str
    example: str
    public: str = ""
    unseen: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """The variables that are set."""
        return {name: os.environ[name] for name in (*self.variables, *self.secrets) if os.environ.get(name)}


AWS = Service(
    place="bucket",
    variables=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"),
    secrets=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    endpoint="AWS_ENDPOINT_URL",
    default="AWS",
    example="s3://BUCKET/PATH",
    public="Of a public bucket write s3://anonymous@BUCKET/PATH.",
)
GOOGLE = Service(
    place="bucket",
    variables=("CLOUD_STORAGE_EMULATOR_ENDPOINT", "GOOGLE_APPLICATION_CREDENTIALS"),
    secrets=(),
    endpoint="CLOUD_STORAGE_EMULATOR_ENDPOINT",
    default="Google Cloud Storage",
    example="gs://BUCKET/PATH",
    public="Of a public bucket write gs://anonymous@BUCKET/PATH.",
)
AZURE = Service(
    place="container",
    variables=("AZURE_STORAGE_SERVICE_ENDPOINT", "AZURE_TENANT_ID", "AZURE_CLIENT_ID"),
    secrets=("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET"),
    endpoint="AZURE_STORAGE_SERVICE_ENDPOINT",
    default="Azure",
    example="abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH",
    public="Of a public container end the URI in ?credential_kind=anonymous.",
)
HUGGING_FACE = Service(
    place="repository",
    variables=("HF_ENDPOINT", "HF_HOME"),
    secrets=("HF_TOKEN",),
    endpoint="HF_ENDPOINT",
    default="the Hugging Face Hub",
    example="hf://datasets/OWNER/NAME/PATH",
    unseen="A private one is not seen without HF_TOKEN.",
)
SERVICES = {"s3": AWS, "gs": GOOGLE, "gcs": GOOGLE, "abfs": AZURE, "abfss": AZURE, "hf": HUGGING_FACE}
"""Scheme of a URI -> what it names."""

AZURE_FOLDERS = ".dfs.core.windows.net"
AZURE_HOST = re.compile(r"(?:[^@]*@)?(?!.*\.dfs\.core\.windows\.net$)[^@]*[.:][^@]*")
"""What stands before a container where a URI names a server: `account.blob.core.windows.net`, `account@host:port`."""


def uri_parts(uri: str) -> tuple[str, str, str]:
    """'s3://bucket/run/a.parquet' as ('s3', 'bucket', 'run/a.parquet'): the scheme, what names the place, the path."""
    kind, _, rest = uri.partition("://")
    place, _, path = rest.partition("/")
    if kind.lower() == "hf":  # 'datasets/someone/rollouts', and of models 'someone/rollouts'
        n_parts = 3 if place in ("datasets", "spaces", "models", "buckets") else 2
        parts = rest.split("/", n_parts)
        place, path = "/".join(parts[:n_parts]), "".join(parts[n_parts:])
    if SERVICES.get(kind.lower()) is AZURE and AZURE_HOST.fullmatch(place):
        container, _, path = path.partition("/")
        place = f"{place}/{container}".rstrip("/")
    return kind.lower(), place, path


def container(place: str) -> str:
    """'logs' of `anonymous@logs`, `logs@account.dfs.core.windows.net` and `account.blob.core.windows.net/logs`."""
    user, _, rest = place.rpartition("@")
    host, _, below = rest.partition("/")
    return below or (user if host.endswith(AZURE_FOLDERS) else host)


@frozen
class StoreRequest:
    """What was asked for.  uri: as it was typed.  query: of the URI, which says more of the store than variables do."""

    uri: str
    query: str = ""

    @property
    def place(self) -> str:
        """The name of the bucket, container or repository."""
        kind, place, _ = uri_parts(self.uri)
        return place if kind == "hf" else container(place)

    @property
    def key(self) -> str:
        """The path in it."""
        return uri_parts(self.uri)[2].strip("/")

    @property
    def service(self) -> Service:
        """The kind of store."""
        return SERVICES[scheme(self.uri)]

    @property
    def endpoint(self) -> str:
        """The server that was asked: the query says it, or a variable, or the URI."""
        named = re.search(r"(?:endpoint_override|blob_storage_authority)=([^&]+)", self.query)
        if named:
            return named[1]
        of_uri = self.uri.partition("://")[2].partition("/")[0].rpartition("@")[2]
        in_uri = of_uri if self.service is AZURE and re.search("[.:]", of_uri) else ""
        return os.environ.get(self.service.endpoint) or in_uri or self.service.default

    @property
    def where(self) -> str:
        """'bucket 'logs', key 'run/a.parquet', endpoint http://127.0.0.1:9000'."""
        key = f", key {shortened(self.key)}" if self.key else ""
        return f"{self.service.place} {shortened(self.place)}{key}, endpoint {self.endpoint}"

    @property
    def settings_used(self) -> str:
        """The variables, with the values that are no secret."""
        settings = self.service.settings
        shown = [f"{name}={settings[name]}" for name in self.service.variables if name in settings]
        shown += [f"{name} is set" for name in self.service.secrets if name in settings]
        unset = [name for name in (*self.service.variables, *self.service.secrets) if name not in settings]
        values = ", ".join([*([f"?{self.query}"] if self.query else []), *shown])
        return (
            f"Looked at: {values}{'; ' if values and unset else ''}{'not set: ' + ', '.join(unset) if unset else ''}."
        )


QUERY = re.compile(r"\?((?:[a-z_]+=[^&=?*]*&)*[a-z_]+=[^&=?*]*)$")
"""The end of a URI that says more of the store; a lone `?` is a wildcard."""


def located(typed: str) -> str:
    """A path as it is; of `file:///path` the path; of another URI the Uri, without its query and a last `/`."""
    kind = scheme(typed)
    if not kind or isinstance(typed, Uri):
        return typed
    if kind == "file":
        path = unquote(typed[len("file://") :])
        if not path.startswith("/"):
            raise UsageError(f"{shortened(typed)} names another machine.", "Write file:///path, or the path alone.")
        return path
    if kind not in SERVICES:
        known = ", ".join(f"{name}://" for name in ("file", *SERVICES))
        fetch = " What lies behind a web address: fetch it first (`curl -O URL`)." if kind in ("http", "https") else ""
        raise UsageError(
            f"{shortened(typed)} is not a place that rlcorr reads or writes.", f"Known are {known}.{fetch}"
        )
    if any(secret.search(typed) for secret in SECRETS):
        raise UsageError(
            f"A URI of {kind}:// holds a password or a key, which reports and logs would show.",
            f"Put it into variables: {', '.join(SERVICES[kind].secrets) or 'as your store has them'}.",
        )
    query = QUERY.search(typed)
    text = typed[: query.start()] if query else typed
    _, _, rest = text.partition("://")
    if not rest.strip("/") or rest.startswith("/"):
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


STATUS = r"(?:HTTP status|status code:) "
CAUSES: tuple[tuple[str, str, str], ...] = (
    (r"valid account name", "it names no account", "Write {example}."),
    (
        r"AuthenticationException|valid authentication credentials|Invalid Access Key|account file|token request|"
        r"169\.254\.169\.254",
        "there are no credentials, or they are not valid",
        "Are the variables right? {public}",
    ),
    (
        r"error sending request|operation timed out|response body|Could not connect",
        "the endpoint does not answer",
        "Is the endpoint right, and the network there?",
    ),
    (
        STATUS + r"429|SlowDown|Throttling|TooManyRequests|ServerBusy|rateLimit",
        "the endpoint refuses requests because there are too many of them (429 Too Many Requests, or SlowDown)",
        "Wait some minutes and run it again, with fewer workers.",
    ),
    (STATUS + r"5\d\d", "the endpoint fails, after several attempts", "Try again later."),
    (r"NoSuchBucket|ContainerNotFound", "there is no such {place}", "Is its name right? {unseen}"),
    (
        r"bucket is located in '(?P<region>[^']+)'|redirect without LOCATION|AuthorizationHeaderMalformed",
        "the bucket is in another region than the one asked, or no region is set",
        "Set AWS_REGION to {region}.",
    ),
    (
        r"ExpiredToken|InvalidToken|" + STATUS + r"40[13]",
        "the credentials are refused",
        "Are they there, and allowed to do this? {public}",
    ),
    (STATUS + r"4\d\d", "the endpoint answers, but not as a store does", "Is the endpoint right?"),
)
"""What an error says -> what is wrong, and what to do."""


def refused(asked: StoreRequest, error: Exception) -> DataError:
    """The cause of an error of a store, as far as it tells."""
    text = " ".join(str(error).split())
    for pattern, what, hint in CAUSES:
        cause = re.search(pattern, text)
        if cause:
            words = {
                "region": cause.groupdict().get("region") or "the bucket's own",
                "place": asked.service.place,
                "unseen": asked.service.unseen,
                "public": asked.service.public,
                "example": asked.service.example,
            }
            hint = " ".join(hint.format(**words).split())
            return DataError(f"{asked.uri}: {what.format(**words)} ({asked.where}).", f"{hint} {asked.settings_used}")
    # Without the places where a library looked for another one.
    first = without_secrets(text).split(" dlopen(")[0].rstrip(".")[:300]
    return DataError(f"{asked.uri} cannot be read ({asked.where}): {first}.", asked.settings_used)


def missing(asked: StoreRequest, names: Iterable[str]) -> DataError:
    """No such key in a bucket that is there.  names: of what lies beside it."""
    names = [name for name in names if not name.startswith(".")]
    name = asked.key.rpartition("/")[2]
    beside = f"Similar names beside it: {nearest(name, names)}." if names else "Nothing lies beside it."
    return DataError(f"{asked.uri}: there is no such key ({asked.where}).", f"{beside} {asked.settings_used}")
