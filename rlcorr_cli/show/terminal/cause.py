"""The likely cause of the gap, in the first lines of what is about more than that."""

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.show.cause import cause_sentence, next_step, told_cause


def print_cause(console: Console, finding: CauseFinding | None) -> None:
    """Print `! top_p  rollout_log_probs was cut at ...: at least 72 % of the gap. ...`; nothing without a cause."""
    cause = told_cause(finding)
    if cause is None:
        return
    line = Text(f"! {cause.cause}  ", style="bold red")
    line.append(f"{cause_sentence(cause)} {next_step(cause)}", style="default")
    console.print(Padding(line, (0, 2)))
    console.print()
