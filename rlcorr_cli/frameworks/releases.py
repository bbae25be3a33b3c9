"""RELEASES: what each profile is, in words; apart from the profiles themselves, which load numpy."""

RELEASES: dict[str, str] = {
    "canonical": "our own arithmetic and names, those of `rlcorr explain metrics`.",
    "verl-mismatch": "config keys and arithmetic of verl in 2025-10, its names under mismatch/.",
    "verl-0.6": "config keys and arithmetic of verl 0.6, its names under rollout_corr/.",
    "verl-0.7": "config keys and arithmetic of verl 0.7, its names under rollout_corr/.",
    "verl-0.9": "config keys and arithmetic of verl 0.9, its names under rollout_corr/.",
    "slime": "options and arithmetic of slime's mis.py (2026-08), its names mis_....",
}
"""Profile -> what a report under it holds."""
