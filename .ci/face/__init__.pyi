from rlcorr_cli.api import *  # noqa: F403

__version__: str
