"""What is wrong when a store does not give what was asked for: one message for each cause, with what was looked at.

Stores answer alike whoever is to blame: a request for a key says 404 without its bucket, and 403 or 301 without a word.
So a message names bucket, key and endpoint, and the variables that decide which store is asked, and as whom.
"""

import re
from collections.abc import Iterable

from rlcorr_cli.errors import DataError, nearest
from rlcorr_cli.files.services import Asked

STATUS = r"(?:HTTP status|status code:|Azure Error: \[\w*\]) "
CAUSES: tuple[tuple[str, str, str], ...] = (
    (
        r"[Uu]nable to load lib|load lib\w+ failed",
        "Java, or Hadoop's libhdfs, is not found",
        "Set JAVA_HOME, HADOOP_HOME or ARROW_LIBHDFS_DIR, and CLASSPATH to all of Hadoop's jars.",
    ),
    (r"valid account name", "it names no account", "Write {example}."),
    (
        r"OAuth2 access token|AuthenticationException|Base64 encoded|token request|169\.254\.169\.254",
        "there are no credentials, or none that hold",
        "Are the variables right? {public}",
    ),
    (
        r"curlCode|CURL error|NETWORK_CONNECTION|[Cc]ould not connect|[Cc]ouldn't resolve|[Cc]onnection refused|"
        r"REQUEST_TIMEOUT|new connection for|Timeout waiting|no answer within|error sending request|"
        r"operation timed out",
        "the endpoint does not answer",
        "Is the endpoint right, and the network there?",
    ),
    (
        STATUS + r"5\d\d|SLOW_DOWN|SERVICE_UNAVAILABLE|INTERNAL_FAILURE|THROTTLING",
        "the endpoint fails, after several attempts",
        "Try again later.",
    ),
    (
        r"NO_SUCH_BUCKET|NoSuchBucket|[Bb]ucket .*not found|BucketNotFound|ContainerNotFound",
        "there is no such {place}",
        "Is its name right? {unseen}",
    ),
    (
        r"configured region is '[^']*' while .* located in '(?P<region>[^']+)'|PERMANENT_REDIRECT|HTTP status 301|"
        r"redirect without LOCATION|"
        r"AuthorizationHeaderMalformed",
        "the bucket is of another region than the one asked, or no region is set",
        "Set AWS_REGION to {region}.",
    ),
    (
        r"ACCESS_DENIED|INVALID_ACCESS_KEY|SIGNATURE_DOES_NOT_MATCH|UNRECOGNIZED_CLIENT|INVALID_CLIENT_TOKEN|"
        r"MISSING_AUTHENTICATION|EXPIRED_TOKEN|ExpiredToken|InvalidToken|UNAUTHENTICATED|"
        # So Google's client calls other statuses, too.
        r"PERMISSION_DENIED(?!.*HTTP status code: 40[^13])|" + STATUS + r"40[13]|[Ff]orbidden",
        "the credentials are refused",
        "Are they there, and allowed to do this? {public}",
    ),
    (STATUS + r"4\d\d", "the endpoint answers, but not as a store does", "Is the endpoint right?"),
)
"""What an error says -> what is wrong, and what to do."""


def refused(asked: Asked, error: Exception) -> DataError:
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
            return DataError(f"{asked.uri}: {what.format(**words)} ({asked.where}).", f"{hint} {asked.looked_at}")
    return DataError(f"{asked.uri} cannot be read ({asked.where}): {_first_words(text)}.", asked.looked_at)


def no_place(asked: Asked) -> DataError:
    """No such bucket, where the store itself says no more than that there is no such key."""
    return refused(asked, FileNotFoundError("NO_SUCH_BUCKET"))


def missing(asked: Asked, names: Iterable[str]) -> DataError:
    """No such key in a bucket that is there.  names: of what lies beside it."""
    names = [name for name in names if not name.startswith(".")]
    name = asked.key.rpartition("/")[2]
    beside = f"Similar names beside it: {nearest(name, names)}." if names else "Nothing lies beside it."
    return DataError(f"{asked.uri}: there is no such key ({asked.where}).", f"{beside} {asked.looked_at}")


def _first_words(text: str) -> str:
    """A library's error, without the places where it looked for another library, and without an address's signature."""
    return re.sub(r"\?\S*\bsig=[^\s']+", "?...", text.split(" dlopen(")[0]).rstrip(".")[:300]
