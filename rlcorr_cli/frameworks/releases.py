"""RELEASES: what each profile is, in words; apart from the profiles themselves, which load numpy."""

RELEASES: dict[str, str] = {
    "canonical": "our own arithmetic and names, those of `rlcorr explain metrics`.",
    "verl-mismatch": "config keys and arithmetic of verl in 2025-10, its names under mismatch/.",
    "verl-0.6": "config keys and arithmetic of verl 0.6.x and 0.7.0, its names under rollout_corr/.",
    "verl-0.7": "config keys and arithmetic of verl 0.7.1, its names under rollout_corr/.",
    "verl-0.8": "config keys and arithmetic of verl 0.8.0, its names under rollout_corr/.",
    "verl-0.9": "config keys and arithmetic of verl 0.9.x, its names under rollout_corr/.",
    "slime": "options and arithmetic of slime's mis.py (2026-08), its names mis_....",
}
"""Profile -> what a report under it holds."""
