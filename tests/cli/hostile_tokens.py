"""Tokens that a terminal or a browser would obey if it could."""

HOSTILE = (
    *(
        "\x1b[31mred",
        "\x1b[2J",
        "\x1b]0;title\x07",
        "\x1b]8;;http://x\x1b\\link",
        "\x9b31m",
        "\x1bc",
        "\x07",
        "\x08\x08\x08",
    ),
    *("\0", "a\0b", "\r", "\r\n", "\n", "\n\n\n", "\t", "\v", "\f", "\x7f", "\x85", "\u2028", "\u2029", "\ufeff"),
    *("\u202eevil", "\u202dx", "\u2066x\u2069", "\u200e", "\u200f", "\u061c", "\u202a\u202b\u202c", "\u200b", "\u2060"),
    *(
        "<script>document.title='x'</script>",
        "</script><script>document.title='x'</script>",
        "<!--",
        "-->",
        "<!--<script>",
    ),
    *(
        "<img src=x onerror=\"document.title='x'\">",
        "</div></article>",
        "<b>",
        "&lt;",
        "&amp;",
        "&#60;script&#62;",
        "]]>",
    ),
    *(
        "\" onmouseover=\"document.title='x'",
        "' onfocus='x",
        "javascript:document.title='x'",
        "{{ 7*7 }}",
        "{% raw %}",
        "${7*7}",
    ),
    *("`backtick`", "\\", "\\u003c", "\\n", "\ud800", "\udfff", "\ud83d", "::error::x", "##[error]x", "##vso[task.x]y"),
    *(
        "[bold]rich[/bold]",
        ":smile:",
        "\U000e0041",
        "\ufff9x\ufffb",
        "a" * 5000,
        "\u0301" * 50,
        "🏳️‍🌈",
        "שלום",
        "__proto__",
    ),
)
"""ANSI, controls, marks of direction, HTML, templates, lone surrogates, commands to CI systems, and what is long."""
