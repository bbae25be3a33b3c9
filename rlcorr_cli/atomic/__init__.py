"""What a run writes appears whole or not at all, never in the place of what is read or of what another tool wrote.

`destinations` compares all paths of a run before it starts, `staging` writes under temporary names and gives the final
ones together, `renaming` is how a name is given, `temporaries` removes what killed runs left.
"""

from rlcorr_cli.atomic.destinations import Destination, check_run
from rlcorr_cli.atomic.staging import Staging, has_published

__all__ = ["Destination", "Staging", "check_run", "has_published"]
