"""DRIFT: from the old policy to the current one, when the dump has both."""

from rlcorr_cli.metrics.metric import Metric

DRIFT: tuple[Metric, ...] = (
    Metric(
        name="ois_mean",
        formula="tok e^(theta - old)",
        unit="ratio",
        ideal=1.0,
        meaning="The mean ratio of the current policy to the old one, which is PPO's own ratio.",
        source="slime's ois",
        value=lambda n: n.per_token("drift.ratio"),
        resampled=False,
    ),
    Metric(
        name="ois_max",
        formula="max e^(theta - old)",
        unit="ratio",
        ideal=1.0,
        meaning="The largest ratio of the current policy to the old one.",
        source="slime's ois",
        value=lambda n: n.max("drift.ratio"),
        resampled=False,
    ),
    Metric(
        name="ppo_kl",
        formula="tok (old - theta)",
        unit="nats",
        ideal=0.0,
        can_be_negative=True,
        meaning="How far the updates on this batch have moved the policy: the k1 estimate of KL(old || current).",
        source="verl's actor/ppo_kl",
        value=lambda n: n.per_token("drift.kl"),
        resampled=False,
    ),
    Metric(
        name="ppo_clip_fraction_high",
        formula="share of tokens with e^(theta - old) > 1 + eps_high",
        unit="share",
        ideal=0.0,
        meaning="How many tokens are above PPO's upper clip.",
        source="PPO; verl's actor/pg_clipfrac counts only those whose advantage lets the clip act",
        value=lambda n: n.per_token("drift.high"),
        resampled=False,
    ),
    Metric(
        name="ppo_clip_fraction_low",
        formula="share of tokens with e^(theta - old) < 1 - eps_low",
        unit="share",
        ideal=0.0,
        meaning="How many tokens are below PPO's lower clip.",
        source="PPO; verl's actor/pg_clipfrac counts only those whose advantage lets the clip act",
        value=lambda n: n.per_token("drift.low"),
        resampled=False,
    ),
)
