"""TERMS: words that name a kind of correction rather than one preset, and SCOPE_TERMS: what a rejection looks at."""

from rlcorr_cli.plans.presets import PRESETS, Preset

TERMS: dict[str, str] = {
    "tis": "Truncated importance sampling: weights clamped to an upper bound, --is token:,2.",
    "icepop": "Weights that are 0 outside two bounds: --is token:0.5,5:zero.",
    "mis": "Masked importance sampling: weights, and a rejection of what lies outside bounds.",
    "cis": "Clipped importance sampling: weights clamped to two bounds.",
    "geometric": "The geometric mean e^g of a sequence's token ratios, which does not depend on its length: "
    "--rs ratio.seq_mean:0.999,1.001 rejects by it, --is geometric weights by it.",
    "sequence": "The product e^S of a sequence's ratios: --is sequence weights by it, --rs ratio.seq_sum rejects.",
    "token": "The ratio rho = e^l of one token: --is token weights by it, --rs ratio.token rejects by it.",
    "veto": "Rejects every sequence that holds a token with a ratio below a tiny bound: --veto 1e-4.",
    "opsm": "Off-policy sequence masking: rejects sequences of negative advantage that the policy has moved away from.",
    "budget": "Rejects the tokens with the largest statistic until the mean of the rest is below a number (M2PO).",
    "decoupled": "Three policies: weights correct rollout to old, PPO's own ratio old to current (--mode decoupled).",
    "bypass": "Two policies: the rollout policy takes the old one's place (--mode bypass).",
}

SCOPE_TERMS: dict[str, str] = {
    "seq_sum": "A sequence by the sum of its tokens' statistics; of ratio by their product e^S, which grows with "
    "length: --rs ratio.seq_sum:0.5,2.",
    "seq_mean": "A sequence by the mean of its tokens' statistics; of ratio by their geometric mean e^g, which does "
    "not depend on length: --rs ratio.seq_mean:0.999,1.001.",
    "seq_max": "A sequence by the largest statistic of its tokens: --rs ratio.seq_max:,100.",
    "seq_min": "A sequence by the smallest statistic of its tokens: --rs ratio.seq_min:1e-4, is the veto.",
}
"""The scopes of a rejection but token, which is a term: each rejects whole sequences."""


def presets_with(term: str) -> list[Preset]:
    """The presets that a term is part of: of their name, of an alias, or of what their records are called."""
    return [row for row in PRESETS.values() if term in _words(row)]


def _words(row: Preset) -> set[str]:
    plan = row.plan
    words = {word for name in (row.name, *row.aliases) for word in name.split("_")}
    words |= {word for rejection in plan.rules for word in rejection.name.split("_")}
    scope = () if plan.weighting is None else (plan.weighting.scope,)
    return {*words, *scope, plan.mode, *(("budget",) if plan.budgets else ())}
