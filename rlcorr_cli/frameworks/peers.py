"""PEERS: frameworks whose own config is read as a plan, without a profile; metrics stay rlcorr's own.

A peer is a module that says where its keys stand and which plan they mean, and a row here.  A config is known by its
keys, so no option names the framework.  Peers whose numbers can be had too are in `profiles.py`.
"""

from collections.abc import Mapping
from typing import Any

from rlcorr_cli.frameworks.areal import AREAL
from rlcorr_cli.frameworks.nemo import NEMO
from rlcorr_cli.frameworks.openrlhf import OPENRLHF
from rlcorr_cli.frameworks.peer import Peer
from rlcorr_cli.frameworks.prime import PRIME
from rlcorr_cli.frameworks.skyrl import SKYRL
from rlcorr_cli.frameworks.trl import TRL

PEERS: dict[str, Peer] = {peer.name: peer for peer in (TRL, NEMO, OPENRLHF, SKYRL, AREAL, PRIME)}


def peer_of(data: Mapping[str, Any]) -> Peer | None:
    """The one peer whose config this is, or None."""
    knowing = [peer for peer in PEERS.values() if peer.knows(data)]
    return knowing[0] if len(knowing) == 1 else None
