"""`explain compare`: how a plan is chosen, on what evidence, and what a dump cannot tell.

The limits stand here in words because their module, `results/recommend.py`, loads numpy; a test holds the two together.
"""

from rlcorr_cli.show.terminal.presets import indented

FLAGS = {
    "moved": "the policies earn differently: |advantage_shift| above 0.2 and above three standard errors. That is "
    "staleness; no plan is safe, token weights are the least bad.",
    "outliers": "a few tokens carry the gap: token_ess below 0.9 at a token_tv below 0.05. Only plans that zero or "
    "drop tokens outside bounds are taken, if one of them has an info of at least 0.5.",
    "far": "too far apart to be safe: token_ess below 0.9 otherwise, or token_tv above 0.1. `rlcorr inspect` and "
    "`rlcorr analyze` look for the cause.",
    "near": "none of these, and seq_tv below 0.05: there is nothing to correct.",
    "weight": "none of these: weight token by token.",
}
"""Every flag with when it holds, in their order."""

_CHOICE = (
    "The plan of the largest worth is taken. Of those within 0.01 of it (0.02 where the flag is near) the one with the "
    "fewest records, then the first of the list; no correction is the last of them. No plan is named below 32 "
    "sequences, where the largest worth is below 0.3, and where the flag is far and there are no advantages that "
    "differ.",
)

_EVIDENCE = (
    "Token weights remove nearly all the bias of a lasting mismatch, the first-order part of the sequence weight "
    "(Zheng et al. 2025), at almost no variance. Sequence weights are unbiased and pay 1 / info: on average no better "
    "even at 65,536 sequences, and with a cap of 2 biased under drift.",
    "Noise that is new in every call biases nothing, so that corrections only cost. A dump cannot tell it from lasting "
    "noise: under `weight`, `compare` says what token weights would cost.",
    "Geometric rejection at +-0.001 fails by what it keeps, and where l goes with the reward it removes the signal "
    "itself. g spreads as 1 / sqrt(n): it keeps long sequences, rejection on S short ones.",
    "In simulation (tabular policies with exact gradients, 396 settings of eleven kinds of mismatch) the choice lost "
    "0.014 of the best plan's progress at 16,384 sequences, no correction 0.034, sequence weights capped at 2 0.030, "
    "geometric rejection at 0.001 0.36.",
    "Not covered: collapse that feeds on itself, thousands of tokens a sequence, PPO's clip. `worth`, flags and choice "
    "are heuristics; the columns themselves are exact.",
)


def about_choice() -> list[str]:
    """The lines of the topic."""
    lines = ["compare", *indented("Flags say what kind of gap there is; the first that holds is the headline:"), ""]
    for name, text in FLAGS.items():
        lines += indented(f"{name}: {text}")
    for heading, paragraphs in (("The choice", _CHOICE), ("Why", _EVIDENCE)):
        lines += ["", heading, *(line for text in paragraphs for line in (*indented(text), ""))][:-1]
    return lines
