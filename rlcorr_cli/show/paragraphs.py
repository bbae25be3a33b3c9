"""How `explain` and `presets` lay out text: paragraphs under a name, in 80 columns, and the symbols of formulas."""

import re
import textwrap

from rlcorr_cli.metrics.metric import symbols_in

WIDTH = 80
_FORMULA = re.compile(r"\w*\^?\|?\w+\|?\^\w+|\w\^\|?\w\|?|\brho\b|\bA (?=[<>])")


def indented(*texts: str) -> list[str]:
    """Paragraphs under a name, wrapped."""
    indent = "    "
    return [
        line
        for text in texts
        for line in textwrap.wrap(text, WIDTH - 4, initial_indent=indent, subsequent_indent=indent)
    ]


def symbol_lines(formula: str) -> list[str]:
    """The formula's symbols, one a line: 'where l = a - b, ...'."""
    lines: list[str] = []
    for symbol, meaning in symbols_in(formula).items():
        head = "    where " if not lines else "          "
        lines += textwrap.wrap(
            f"{symbol}: {meaning}", WIDTH, initial_indent=head, subsequent_indent=" " * (len(head) + 2)
        )
    return lines


def symbol_lines_of_prose(*texts: str) -> list[str]:
    """The symbols of the formulas within sentences: of powers such as e^l, rho and the sign of A, as words may be
    letters of formulas, too."""
    formulas = [formula for text in texts for formula in _FORMULA.findall(text)]
    return symbol_lines(" ".join(formulas))
