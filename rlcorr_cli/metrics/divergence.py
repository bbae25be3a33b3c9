"""How far apart policies are, as KL estimates, perplexities and chi-squared, and the gaps of single tokens.

DIVERGENCE: training from rollout, rows of METRICS in their order.  DRIFT: the current policy from the old one, where a
dump has both.
"""

from typing import TYPE_CHECKING, Any

from rlcorr_cli.metrics.metric import Metric, std_over_tokens, unit_ratio, zero_nats, zero_share

if TYPE_CHECKING:
    from rlcorr_cli.totals.view import Numbers


def _pearson(n: "Numbers") -> Any:
    """Correlation of e^a with e^b; nothing where a column is constant (to rounding)."""
    import numpy as np

    from rlcorr_cli.totals.view import variance

    p, q = n.per_token("rollout_prob"), n.per_token("train_prob")
    var_p = variance(p, n.per_token("rollout_prob_sq"))
    var_q = variance(q, n.per_token("train_prob_sq"))
    constant = (var_p == 0) | (var_q == 0)
    scale = np.sqrt(np.where(constant, 1.0, var_p)) * np.sqrt(np.where(constant, 1.0, var_q))
    return np.where(constant, np.nan, (n.per_token("prob_product") - p * q) / scale)


def _largest_gap(n: "Numbers") -> Any:
    import numpy as np

    return np.maximum(-n.min("log_ratio"), n.max("log_ratio"))


_PROBS = "verl's rollout probability metrics"
_KL = "Schulman, Approximating KL Divergence (2020)"
_VERL = "verl's rollout correction metrics"

DIVERGENCE: tuple[Metric, ...] = (
    zero_nats(
        name="kl",
        formula="tok (b - a)",
        can_be_negative=True,
        meaning="The k1 estimate of KL(rollout || training). It is unbiased but noisy, and can be negative.",
        worry="Its whole interval is below 0: the tokens were not drawn from the rollout column.",
        measured=(0.00103, 0.00439, 1.06e-08),
        source=_KL,
        value=lambda n: 0.0 - n.per_token("log_ratio"),  # never -0.0
        shown={"terminal": 1, "figures": 2, "course": 2, "groups": 1, "kept": 3, "diff": 1},
        figure="KL, mean log-ratio",
        refuses="policies",
    ),
    zero_nats(
        name="k2_kl",
        formula="tok l^2 / 2",
        meaning="Half the mean squared log-ratio: a KL estimate that is never negative, but biased for large gaps.",
        worry="Far from k3_kl: a few tokens with large gaps dominate both.",
        measured=(0.00115, 0.00411, 6.85e-12),
        source=_KL,
        value=lambda n: n.per_token("log_ratio_sq") / 2,
    ),
    zero_nats(
        name="k3_kl",
        formula="tok (e^l - 1 - l)",
        meaning="The k3 estimate of KL(rollout || training): unbiased and never negative. Use it to compare dumps.",
        worry="Ten times the value of another engine of the same precision: the data are stale, or a sampling setting "
        "differs.",
        measured=(0.00114, 0.00395, 6.85e-12),
        source=_KL,
        value=lambda n: n.per_token("k3"),
        shown={"terminal": 2, "figures": 3, "course": 1, "groups": 2, "kept": 4, "diff": 2},
        figure="KL, low variance",
        refuses="policies",
    ),
    zero_nats(
        name="k3_kl_reverse",
        formula="tok (e^-l - 1 + l)",
        meaning="k3 with the policies exchanged: large if the training policy finds sampled tokens unlikely.",
        worry="Far above k3_kl: the training policy gives some sampled tokens almost no probability.",
        measured=(0.00115, 0.00444, 6.85e-12),
        source=_KL,
        value=lambda n: n.per_token("k3_reverse"),
    ),
    zero_nats(
        name="js_divergence",
        formula="tok log cosh(l / 2)",
        meaning="An estimate of the Jensen-Shannon divergence. It is symmetric, and grows only like |l| for large "
        "gaps.",
        measured=(0.000287, 0.00102, 1.71e-12),
        source="NeMo-RL's js_divergence_error, simplified",
        value=lambda n: n.per_token("js"),
    ),
    Metric(
        name="training_ppl",
        formula="seq exp(-mean a)",
        unit="perplexity",
        meaning="How surprised the training policy is by the sampled text: the mean of the sequences' perplexities.",
        worry="Rising over steps while rollout_ppl does not: the training policy moves away from the data.",
        measured=(12.7, 10.1, 11.2),
        source=_VERL,
        value=lambda n: n.per_sequence("training_ppl"),
    ),
    Metric(
        name="rollout_ppl",
        formula="seq exp(-mean b)",
        unit="perplexity",
        meaning="How surprised the rollout policy is by its own text: between how many equally likely tokens it "
        "chooses.",
        worry="Falling towards 1 over steps: the policy's entropy collapses.",
        measured=(12.7, 10.0, 11.2),
        source=_VERL,
        value=lambda n: n.per_sequence("rollout_ppl"),
    ),
    Metric(
        name="training_log_ppl",
        formula="seq (-mean a)",
        unit="nats",
        meaning="The log of a sequence's perplexity under the training policy, averaged over sequences.",
        measured=(2.03, 1.98, 2.05),
        source=_VERL,
        value=lambda n: n.per_sequence("training_log_ppl"),
    ),
    Metric(
        name="rollout_log_ppl",
        formula="seq (-mean b)",
        unit="nats",
        meaning="The log of a sequence's perplexity under the rollout policy, averaged over sequences.",
        measured=(2.03, 1.97, 2.05),
        source=_VERL,
        value=lambda n: n.per_sequence("rollout_log_ppl"),
    ),
    zero_nats(
        name="log_ppl_diff",
        formula="seq d",
        can_be_negative=True,
        meaning="Like kl, but every sequence counts once. Above 0, the training policy is the less confident one.",
        worry="Far from kl: the gap of short sequences differs from that of long ones.",
        measured=(0.00079, 0.00492, 4.58e-09),
        source=_VERL,
        value=lambda n: n.per_sequence("log_ppl_diff"),
    ),
    zero_nats(
        name="log_ppl_abs_diff",
        formula="seq |d|",
        meaning="The size of a sequence's mean gap per token, averaged over sequences.",
        measured=(0.0047, 0.00936, 3.07e-07),
        source=_VERL,
        value=lambda n: n.per_sequence("log_ppl_abs_diff"),
    ),
    zero_nats(
        name="log_ppl_diff_max",
        formula="max d",
        can_be_negative=True,
        meaning="The sequence that training makes least likely per token, compared with the rollout policy.",
        worry="Many times log_ppl_abs_diff: look at that sequence with `inspect --worst`.",
        measured=(0.00983, 0.0366, 7.39e-07),
        source=_VERL,
        value=lambda n: n.max("log_ppl_diff"),
        resampled=False,
    ),
    zero_nats(
        name="log_ppl_diff_min",
        formula="min d",
        can_be_negative=True,
        meaning="The sequence that training makes most likely per token, compared with the rollout policy.",
        worry="Many times log_ppl_abs_diff: look at that sequence with `inspect --worst`.",
        measured=(-0.0236, -0.0221, -1.18e-06),
        source=_VERL,
        value=lambda n: n.min("log_ppl_diff"),
        resampled=False,
    ),
    unit_ratio(
        name="ppl_ratio",
        formula="seq e^d",
        meaning="Training perplexity divided by rollout perplexity, averaged over sequences.",
        worry="Farther from 1 than the width of its interval: one policy is systematically more confident.",
        measured=(1.0, 1.0, 1.0),
        source=_VERL,
        value=lambda n: n.per_sequence("ppl_ratio"),
        shown={"terminal": 5, "figures": 4, "course": 4, "groups": 5},
        figure="perplexity ratio",
    ),
    Metric(
        name="chi2_token",
        formula="tok rho^2 - 1, l limited to +-20",
        unit="none",
        ideal=0.0,
        can_be_negative=True,
        is_positive_in_truth=True,
        meaning="The variance that raw token weights add. It is below 0 only if the sample misses the large ratios.",
        measured=(0.00253, 0.0067, -2.12e-08),
        source=_VERL,
        value=lambda n: n.per_token("chi2"),
        shown={"terminal": 3, "groups": 3},
        refuses="policies",
    ),
    Metric(
        name="chi2_seq",
        formula="seq exp(2 S) - 1, S limited to +-20",
        unit="none",
        ideal=0.0,
        can_be_negative=True,
        is_positive_in_truth=True,
        meaning="The variance that raw sequence weights add. A single sequence can make it huge; it is below 0 only "
        "if the sample misses such sequences.",
        worry="Above 1: less than half of the batch is effective under raw sequence weights; seq_ess is the share.",
        measured=(0.517, 1.32, -1.78e-06),
        source=_VERL,
        value=lambda n: n.per_sequence("chi2_seq"),
        resampled=False,
        shown={"terminal": 4},
    ),
    unit_ratio(
        name="ratio_mean",
        formula="tok rho",
        meaning="The mean token ratio: 1 in expectation if the tokens were drawn from the rollout column.",
        worry="Its interval excludes 1: the tokens were not drawn from the rollout column, or only some tokens could "
        "be. How to find what is wrong: 1. `rlcorr diagnose DUMP` names swapped, shifted and truncated columns. 2. "
        "Below 1: compare the engine's sampling options with what it logs. After top-p, top-k or min-p its log-probs "
        "add up over the kept tokens alone; `rlcorr help dumps` has each engine's switch. If none is on, compare the "
        "sizes of the two vocabularies. 3. Above 1: score one response again with the engine that sampled it. If the "
        "two differ, the column is of other weights, other tokens or another temperature. 4. Add --group-by worker, "
        "or data_source: a mean that is off in one group alone names the part that writes it.",
        measured=(1.0, 1.0, 1.0),
        value=lambda n: 1 + n.per_token("rho_minus_1"),
        shown={"figures": 1},
        figure="mean ratio",
    ),
    zero_share(
        name="token_tv",
        formula="tok max(0, 1 - rho)",
        meaning="The total variation of the policies at a token: the share of the choices on which they differ.",
        worry="Above 0.1: too far apart for any weights to be safe.",
        measured=(0.0158, 0.0277, 1.2e-06),
        value=lambda n: n.per_token("tv"),
    ),
    zero_share(
        name="seq_tv",
        formula="seq max(0, 1 - e^S)",
        meaning="The total variation of the policies over sequences. It is precise even if seq_ess and chi2_seq are "
        "not.",
        worry="Above 0.05: there is something to correct.",
        measured=(0.18, 0.311, 1.3e-05),
        value=lambda n: n.per_sequence("seq_tv"),
        shown={"diff": 5},
    ),
    zero_nats(
        name="log_ratio_mean",
        formula="tok l",
        can_be_negative=True,
        meaning="The mean log-ratio, which is minus kl.",
        measured=(-0.00103, -0.00439, -1.06e-08),
        value=lambda n: n.per_token("log_ratio"),
    ),
    zero_nats(
        name="log_ratio_std",
        formula="population std of l over tokens",
        meaning="The width of the histogram of log-ratios: the size of the noise between the policies.",
        worry="k3_kl far above half its square: the gap is not noise; a few tokens are far out.",
        measured=(0.0479, 0.0905, 3.7e-06),
        value=lambda n: std_over_tokens(n, "log_ratio", "log_ratio_sq"),
        fewest_clusters=20,
    ),
    zero_nats(
        name="logprob_abs_diff_mean",
        formula="tok |l|",
        meaning="The mean difference between the two log-probs of a token, without its sign.",
        measured=(0.0318, 0.0556, 2.39e-06),
        value=lambda n: n.per_token("abs_log_ratio"),
        shown={"diff": 3},
    ),
    zero_nats(
        name="logprob_abs_diff_std",
        formula="population std of |l| over tokens",
        meaning="How unequal these differences are from token to token.",
        worry="Many times logprob_abs_diff_mean: a few tokens carry the gap.",
        measured=(0.0358, 0.0716, 2.82e-06),
        value=lambda n: std_over_tokens(n, "abs_log_ratio", "log_ratio_sq"),
        has_interval=False,
    ),
    zero_nats(
        name="logprob_abs_diff_max",
        formula="max |l|",
        meaning="The largest difference between the two log-probs of a token.",
        worry="Above 10: look at that token with `inspect --worst`; a wrong mask or a fill value shows here.",
        measured=(0.332, 1.65, 2.69e-05),
        value=_largest_gap,
        resampled=False,
    ),
    zero_share(
        name="bit_mismatch",
        formula="share of tokens whose a and b differ in float32",
        meaning="The tokens on which the two engines differ in at least one bit of float32.",
        worry="Above 0 although the engines should be bit-equal: `rlcorr check --expect equal` fails.",
        measured=(1.0, 1.0, 0.886),
        source="prime-rl's logprob_bit_mismatch",
        value=lambda n: n.per_token("bit_mismatch"),
    ),
    Metric(
        name="prob_abs_diff_mean",
        formula="tok |e^a - e^b|",
        unit="probability",
        ideal=0.0,
        meaning="The mean difference between the two probabilities of a token, without its sign.",
        worry="Above 0.005: verl's guide calls only less than this good.",
        measured=(0.00651, 0.01, 4.75e-07),
        source=_PROBS,
        value=lambda n: n.per_token("abs_prob_gap"),
        shown={"terminal": 6, "figures": 5, "diff": 4},
        figure="mean gap of probabilities",
    ),
    Metric(
        name="prob_abs_diff_std",
        formula="population std of |e^a - e^b| over tokens",
        unit="probability",
        ideal=0.0,
        meaning="How unequal these differences are from token to token.",
        measured=(0.00917, 0.0147, 6.71e-07),
        source=_PROBS,
        value=lambda n: std_over_tokens(n, "abs_prob_gap", "prob_gap_sq"),
        has_interval=False,
    ),
    Metric(
        name="prob_abs_diff_max",
        formula="max |e^a - e^b|",
        unit="probability",
        ideal=0.0,
        meaning="The largest difference between the two probabilities of a token.",
        worry="Near 1: a token is certain under one policy and impossible under the other.",
        measured=(0.0933, 0.15, 6.19e-06),
        source=_PROBS,
        value=lambda n: n.max("abs_prob_gap"),
        resampled=False,
    ),
    Metric(
        name="prob_pearson",
        can_be_negative=True,
        formula="Pearson correlation of e^a with e^b over tokens",
        unit="none",
        ideal=1.0,
        meaning="How well the two policies agree on which tokens are likely.",
        worry="Below 0.99: the precision of an engine does not explain this. Near 0: the columns are misaligned.",
        measured=(1.0, 0.999, 1.0),
        source=_PROBS,
        value=_pearson,
        fewest_clusters=20,
        shown={"terminal": 7},
    ),
    unit_ratio(
        name="token_mult_prob_error",
        formula="tok e^|l|",
        meaning="The larger of a token's two probabilities divided by the smaller one, averaged over tokens.",
        worry="Far above 1 + logprob_abs_diff_mean: one token with a huge gap dominates it.",
        measured=(1.03, 1.06, 1.0),
        source="NeMo-RL",
        value=lambda n: n.per_token("mult_error"),
    ),
)

DRIFT: tuple[Metric, ...] = (
    unit_ratio(
        name="ois_mean",
        formula="tok e^(theta - old)",
        meaning="The mean ratio of the current policy to the old one, which is PPO's own ratio.",
        source="slime's ois",
        value=lambda n: n.per_token("drift.ratio"),
        resampled=False,
    ),
    unit_ratio(
        name="ois_max",
        formula="max e^(theta - old)",
        meaning="The largest ratio of the current policy to the old one.",
        source="slime's ois",
        value=lambda n: n.max("drift.ratio"),
        resampled=False,
    ),
    zero_nats(
        name="ppo_kl",
        formula="tok (old - theta)",
        can_be_negative=True,
        meaning="How far the updates on this batch have moved the policy: the k1 estimate of KL(old || current).",
        source="verl's actor/ppo_kl",
        value=lambda n: n.per_token("drift.kl"),
        resampled=False,
    ),
    zero_share(
        name="ppo_clip_fraction_high",
        formula="share of tokens with e^(theta - old) > 1 + eps_high",
        meaning="How many tokens are above PPO's upper clip.",
        source="PPO; verl's actor/pg_clipfrac counts only those whose advantage lets the clip act",
        value=lambda n: n.per_token("drift.high"),
        resampled=False,
    ),
    zero_share(
        name="ppo_clip_fraction_low",
        formula="share of tokens with e^(theta - old) < 1 - eps_low",
        meaning="How many tokens are below PPO's lower clip.",
        source="PPO; verl's actor/pg_clipfrac counts only those whose advantage lets the clip act",
        value=lambda n: n.per_token("drift.low"),
        resampled=False,
    ),
)
