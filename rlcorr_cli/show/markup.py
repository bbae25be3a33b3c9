"""Text from outside as Markdown and as GitHub's workflow commands: shown as it is, never read as markup."""

import re

from rlcorr_cli.show.stdout import clean, disarmed

SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~@$-])")


def escaped(value: object) -> str:
    """Text that Markdown shows as it is."""
    text = str(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # GitHub makes links of bare addresses.
    return SPECIAL.sub(r"\\\1", text).replace("://", "&#58;//").replace("www.", "www&#46;")


def prose(sentence: str) -> str:
    """A sentence of ours as Markdown: `commands` stay code, all else is shown as it is."""
    parts = sentence.split("`")
    if len(parts) % 2 == 0:  # a backtick without its end
        return escaped(sentence)
    return "".join(f"`{part}`" if i % 2 else escaped(part) for i, part in enumerate(parts))


def command_data(value: object) -> str:
    """What stands behind the :: of a workflow command."""
    return disarmed(clean(str(value).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")))


def command_property(value: object) -> str:
    """A property of a workflow command, such as its title."""
    return command_data(value).replace(":", "%3A").replace(",", "%2C")
