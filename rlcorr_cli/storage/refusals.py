"""What is wrong when a store does not give what was asked for: one message for each cause, with what was looked at.

Stores answer alike whoever is to blame: a request for a key says 404 without its bucket, and 403 or 301 without a word.
So a message names bucket, key and endpoint, and the variables that decide which store is asked, and as whom.
"""

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from rlcorr_cli.errors import DataError, nearest, shortened


@dataclass(frozen=True)
class Service:
    """A kind of store.  variables: that decide which one is asked, and as whom; of `secrets` no value is shown.

    place: what the first part of a URI names.  endpoint: a variable that names the server, and where it is else.
    """

    place: str
    variables: tuple[str, ...]
    secrets: tuple[str, ...]
    endpoint: str
    default: str


AWS = Service(
    place="bucket",
    variables=("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"),
    secrets=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    endpoint="AWS_ENDPOINT_URL",
    default="AWS",
)
GOOGLE = Service(
    place="bucket",
    variables=("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS"),
    secrets=(),
    endpoint="STORAGE_EMULATOR_HOST",
    default="Google Cloud Storage",
)
AZURE = Service(
    place="container",
    variables=("AZURE_TENANT_ID", "AZURE_CLIENT_ID"),
    secrets=("AZURE_CLIENT_SECRET",),
    endpoint="",
    default="Azure",
)
HADOOP = Service(
    place="host",
    variables=("JAVA_HOME", "HADOOP_HOME", "ARROW_LIBHDFS_DIR", "CLASSPATH"),
    secrets=(),
    endpoint="",
    default="its name node",
)
HUGGING_FACE = Service(
    place="kind of repository",
    variables=("HF_ENDPOINT", "HF_HOME"),
    secrets=("HF_TOKEN",),
    endpoint="HF_ENDPOINT",
    default="the Hugging Face Hub",
)
SERVICES = {
    "s3": AWS,
    "gs": GOOGLE,
    "gcs": GOOGLE,
    "abfs": AZURE,
    "abfss": AZURE,
    "hdfs": HADOOP,
    "viewfs": HADOOP,
    "hf": HUGGING_FACE,
}
"""Scheme of a URI -> what it names."""


@dataclass(frozen=True)
class Asked:
    """What was asked for.  query: of the URI, which says more of the store than variables do."""

    scheme: str
    place: str
    key: str
    query: str = ""

    @property
    def uri(self) -> str:
        """As it was typed."""
        return f"{self.scheme}://{self.place}" + (f"/{self.key}" if self.key else "")

    @property
    def service(self) -> Service:
        """The kind of store."""
        return SERVICES[self.scheme]

    @property
    def endpoint(self) -> str:
        """The server that was asked."""
        named = re.search(r"endpoint_override=([^&]+)", self.query)
        return named[1] if named else os.environ.get(self.service.endpoint) or self.service.default

    @property
    def where(self) -> str:
        """'bucket 'logs', key 'run/a.parquet', endpoint http://127.0.0.1:9000'."""
        key = f", key {shortened(self.key)}" if self.key else ""
        return f"{self.service.place} {shortened(self.place)}{key}, endpoint {self.endpoint}"

    @property
    def looked_at(self) -> str:
        """The variables, with the values that are no secret."""
        shown = [f"{name}={os.environ[name]}" for name in self.service.variables if os.environ.get(name)]
        shown += [f"{name} is set" for name in self.service.secrets if os.environ.get(name)]
        names = (*self.service.variables, *self.service.secrets)
        unset = [name for name in names if not os.environ.get(name)]
        values = ", ".join([*([f"?{self.query}"] if self.query else []), *shown])
        return (
            f"Looked at: {values}{'; ' if values and unset else ''}{'not set: ' + ', '.join(unset) if unset else ''}."
        )


CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"curlCode|NETWORK_CONNECTION|[Cc]ould not connect|[Cc]ouldn't resolve|[Cc]onnection refused|REQUEST_TIMEOUT",
        "the endpoint does not answer",
        "Is the endpoint right, and the network there?",
    ),
    (
        r"HTTP status 5\d\d|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING",
        "the endpoint fails, after several attempts",
        "Try again later.",
    ),
    (r"NO_SUCH_BUCKET|[Bb]ucket .*not found|BucketNotFound", "there is no such bucket", "Is its name right?"),
    (
        r"configured region is '[^']*' while .* located in '(?P<region>[^']+)'|PERMANENT_REDIRECT|HTTP status 301|"
        r"AuthorizationHeaderMalformed",
        "the bucket is of another region than the one asked, or no region is set",
        "Set AWS_REGION to {region}.",
    ),
    (
        r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|INVALID_CLIENT_TOKEN|"
        r"MISSING_AUTHENTICATION|EXPIRED_TOKEN|ExpiredToken|InvalidToken|HTTP status 40[13]|PERMISSION_DENIED|"
        r"[Ff]orbidden",
        "the credentials are refused",
        "Are they there, and allowed to do this?",
    ),
    (r"HTTP status 4\d\d", "the endpoint answers, but not as a store does", "Is the endpoint right?"),
)
"""What an error says -> what is wrong, and what to do."""


def refused(asked: Asked, error: Exception) -> DataError:
    """The cause of an error of a store, as far as it tells."""
    text = " ".join(str(error).split())
    for pattern, what, hint in CAUSES:
        cause = re.search(pattern, text)
        if cause:
            region = cause.groupdict().get("region") or "the bucket's own"
            return DataError(f"{asked.uri}: {what} ({asked.where}).", f"{hint.format(region=region)} {asked.looked_at}")
    return DataError(f"{asked.uri} cannot be read ({asked.where}): {_first_words(text)}.", asked.looked_at)


def missing(asked: Asked, names: Iterable[str]) -> DataError:
    """No such key in a bucket that is there.  names: of what lies beside it."""
    names = [name for name in names if not name.startswith(".")]
    name = asked.key.rpartition("/")[2]
    beside = f"Similar names beside it: {nearest(name, names)}." if names else "Nothing lies beside it."
    return DataError(f"{asked.uri}: there is no such key ({asked.where}).", f"{beside} {asked.looked_at}")


def _first_words(text: str) -> str:
    """A library's error, without all the places where it looked for another library."""
    return text.split(" dlopen(")[0].rstrip(".")[:300]
