"""COMPARED: the presets that `compare` takes where none is named: verl's, and one of every other framework.

Among plans that are worth the same and have equally many records, the first in this order is recommended.
"""

from rlcorr_cli.plans.presets import PRESETS, Preset

_NAMES = (
    "decoupled_token_is",
    "decoupled_seq_is",
    "decoupled_seq_is_rs",
    "decoupled_geo_rs",
    "geo_is",
    "token_rs",
    "decoupled_token_icepop",
    "decoupled_k3_rs",
    "disabled",
    "slime_tis",
    "trl_sequence_mask",
    "nemo_seq_mask_tis",
    "openrlhf_tis",
    "skyrl_geometric",
    "areal_ratio_token",
    "prime_ipo",
    "roll_train_infer",
    "ppo_is_bypass",
    "pg_is",
    "pg_rs",
)

COMPARED: tuple[Preset, ...] = tuple(PRESETS[name] for name in _NAMES)
