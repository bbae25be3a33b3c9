"""When a file was last changed, as reports keep it: UTC to the minute, ISO 8601 (`2026-11-22T20:21Z`), which sorts as
text."""

from datetime import UTC, datetime


def utc_minute(seconds: float) -> str | None:
    """A time since 1970, in seconds; None of one that no calendar holds."""
    try:
        return _text(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        return None


def stated_minute(stated: str) -> str | None:
    """A time as a store states it, by ISO 8601 or as in headers of HTTP; None of any other text."""
    from email.utils import parsedate_to_datetime  # not cheap, and needed of stores alone

    for parsed in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            moment = parsed(stated)
            return _text(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
        except (ValueError, OverflowError):
            continue
    return None


def _text(moment: datetime) -> str:
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='minutes')}Z"
