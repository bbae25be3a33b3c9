"""rlcorr: offline log-prob analysis for LLM reinforcement learning.

Nothing heavy is imported here: `rlcorr --help` must stay quick.
"""

__version__ = "0.1.0"
