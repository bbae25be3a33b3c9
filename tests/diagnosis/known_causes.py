"""Dumps of known cause: real rollouts of a small model and real rescoring with one fault each (or none).

Made with SmolLM2-135M-Instruct: a fault is in the forward pass or the sampler itself.  `worker` is random where the
cause is not the worker.  In `top_p09_raw_both` and `temp07_matched` both columns are alike: no fault can be seen.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path

from rlcorr_cli import diagnose
from rlcorr_cli.causes.diagnosis import CauseFinding
from rlcorr_cli.results.diagnosed import DiagnosedDump

DUMPS = Path(__file__).parent / "causes"
VERDICTS = {
    "noise_bf16_fp32": "noise",
    "noise_bf16_bf16": "noise",
    "temp07_matched": "noise",
    "top_p09_raw_both": "noise",
    "tool_clean": "noise",
    "clean_fp32": "none",
    "grid_bf16_train": "noise",
    "fp32_grid_bf16": "grid",
    "fp32_grid_4dec": "grid",
    "top_p095": "top_p",
    "top_p08": "top_p",
    "top_p099": "noise",
    "top_k50": "top_k",
    "top_k20": "top_k",
    "min_p005": "min_p",
    "min_p002": "min_p",
    "temp07_topp09_vs_temp": "top_p",
    "temp07_topp09_vs_raw": "temperature_and_truncation",
    "temp07_processed_vs_raw": "temperature",
    "temp07_raw_vs_processed": "temperature",
    "temp08_processed_vs_raw": "temperature",
    "temp09_processed_vs_raw": "temperature",
    "temp097_processed_vs_raw": "temperature",
    "temp12_processed_vs_raw": "temperature",
    "temp07_divided": "unnormalised",
    "rep11": "repetition_penalty",
    "rep103": "repetition_penalty",
    "quant_int8": "other_weights",
    "quant_int4": "other_weights",
    "quant_fp8": "other_weights",
    "wrong_ckpt_small": "other_weights",
    "lora_not_merged": "other_weights",
    "stale_1": "stale_policy",
    "stale_4": "stale_policy",
    "stale_hi_4": "other_weights",
    "stale_mixed_versions": "stale_policy",
    "source_code_stale": "column",
    "worker_temp09": "column",
    "moe_flips_bf16": "heavy_tail",
    "softcap30": "logit_softcap",
    "softcap80": "logit_softcap",
    "padvocab_random": "padded_vocabulary",
    "padvocab_half": "padded_vocabulary",
    "window64": "position_onset",
    "rope_scale125": "other_weights",
    "prompt_newline": "first_token",
    "prompt_system": "position_decays",
    "eos_wrong_id": "last_token",
    "eos_appended_zero": "last_token",
    "tool_retokenised": "mask_boundary",
    "mispaired_5pct": "mispaired_rows",
    "combo_topp09_eos0": "last_token",
    "combo_temp09_mispaired": "mispaired_rows",
}
"""Dump -> the cause that its diagnosis must name first."""
ALSO = {
    "top_p099": "top_p",
    "combo_topp09_eos0": "top_p",
    "combo_temp09_mispaired": "temperature",
}
"""Dump -> a cause that must be among the others."""
COLUMNS = {
    "stale_mixed_versions": "lag",
    "source_code_stale": "data_source",
    "worker_temp09": "worker",
}
"""Dump -> the column that its verdict `column` must name."""


@cache
def diagnosed(name: str) -> DiagnosedDump:
    """What `diagnose` says of one of these."""
    return diagnose(DUMPS / f"{name}.parquet")


def shares_add(causes: Iterable[CauseFinding]) -> bool:
    """Whether the shares of causes that are named beside each other, and of the noise that is left, are all of the gap
    at most."""
    return sum(cause.share for cause in causes) < 1 + 1e-9
