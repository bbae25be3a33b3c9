"""Numbers in the sentences of a recommendation."""

from rlcorr_cli.totals.families import Value


def share(value: Value) -> str:
    """A percentage, with the digits of what is left to 0 % or 100 %, which only 0 and 1 are, but for rounding."""
    if value is None:
        return "an unknown share"
    percent = 100 * value
    if percent == 0 or abs(percent - 100) < 1e-10:
        return f"{percent:.0f} %"
    if not 0.05 <= percent < 99.95:
        return "under 0.1 %" if percent < 1 else "over 99.9 %"
    return f"{percent:.{1 if percent < 9.95 or percent > 90.05 else 0}f} %"


def number(value: Value) -> str:
    """Two digits, or whole thousands."""
    return "unknown" if value is None else f"{value:.2g}" if abs(value) < 10 else f"{value:,.0f}"


def apart(value: float, limit: float) -> tuple[str, str]:
    """Two numbers with as many decimals as tell them apart."""
    texts = ((f"{value:.{decimals}f}", f"{limit:.{decimals}f}") for decimals in (2, 3, 4))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(value), repr(limit)))
