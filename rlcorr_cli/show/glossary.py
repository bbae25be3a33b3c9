"""GLOSSARY: every word that a report, a page or a help prints and that no other table defines.

`rlcorr explain NAME` and the manual's page `glossary` are made of these rows; metrics, presets, causes, columns,
problems and symbols have tables of their own, and `explain` reads all of them.  A heading that stands for a metric
names it, and `explain` adds the metric's definition.
"""

import re
from collections.abc import Mapping, Sequence

from rlcorr_cli.frozen import frozen


@frozen(kw_only=True)
class Term:
    """A word and what it means, in whole sentences.  also: other words for it.  metric: what a heading stands for."""

    name: str
    meaning: str
    also: tuple[str, ...] = ()
    metric: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The name and the other words for it."""
        return (self.name, *self.also)


def _metric(heading: str, metric: str, about: str) -> Term:
    """A heading of a table that stands for a metric."""
    return Term(name=heading, meaning=f"{about} The metric {metric}.", metric=metric)


_LINES = [
    f"line_{x}{end}_{part}" for x in "uv" for end in ("", "_high", "_low") for part in ("slope", "error", "r2", "match")
]


def _feature(name: str, about: str, *also: str) -> Term:
    """A number that `diagnose --json` lists among its features."""
    return Term(name=name, meaning=f"A feature: {about}", also=also)


GLOSSARY: Mapping[str, Sequence[Term]] = {
    "The two policies": (
        Term(
            name="policy",
            meaning="A model that gives every possible next token a probability. Training changes the policy.",
            also=("policies",),
        ),
        Term(
            name="rollout policy",
            meaning="The policy that sampled the tokens: the model as the inference engine (vLLM, SGLang) computes it.",
            also=("rollout", "rollout engine", "behaviour policy", "sampler"),
        ),
        Term(
            name="training policy",
            meaning="The policy that the trainer (FSDP, Megatron) computes for the same tokens. It is the old policy "
            "or the current policy.",
            also=("trainer", "training engine", "train"),
        ),
        Term(
            name="old policy",
            meaning="The training policy with the weights from before the update. PPO compares the current policy with "
            "it. Its log-probs are the column old_log_probs.",
        ),
        Term(
            name="current policy",
            meaning="The training policy while it is being updated. Its log-probs are the column current_log_probs.",
        ),
        Term(
            name="log-prob",
            meaning="The logarithm of the probability that a policy gives to one token, in nats. It is 0 for a certain "
            "token and negative for every other one.",
            also=("log-probs", "logprob", "logprobs", "logp", "log probability"),
        ),
        Term(
            name="rollout log-probs",
            meaning="The log-probs that the inference engine recorded when it sampled the tokens: the column "
            "rollout_log_probs.",
            also=("rollout logp", "rollout log-prob"),
        ),
        Term(
            name="entropy",
            meaning="How undecided a policy was about a token, in nats: 0 if one token has all the probability. "
            "`inspect` shows it if the dump has it.",
        ),
        Term(
            name="train logp",
            meaning="The log-prob of a token under the training policy: of old_log_probs, or of current_log_probs in "
            "bypass mode.",
            also=("training log-probs", "current logp"),
        ),
        Term(
            name="rollout p",
            meaning="The probability that the rollout policy gave to a token: e to the power of its rollout log-prob.",
            also=("prob", "probability"),
        ),
        Term(
            name="log-ratio",
            meaning="The training log-prob of a token minus its rollout log-prob. 0 means that both policies agree; "
            "0.1 means that training finds the token about 10% more probable.",
            also=("log-ratios",),
        ),
        Term(
            name="ratio",
            meaning="e to the power of the log-ratio: how many times more probable the token is under the training "
            "policy than under the rollout policy.",
            also=("importance ratio",),
        ),
        Term(
            name="log-odds",
            meaning="log(p / (1 - p)) of a token's probability p. Rounding moves the log-odds of all tokens by about "
            "the same amount, so `diagnose` compares policies by them.",
            also=("logit", "log-odds from"),
        ),
        Term(
            name="nats",
            meaning="The unit of log-probs and KL: natural logarithms. A difference of 0.1 nats is a factor of 1.105.",
            also=("nat",),
        ),
        Term(
            name="perplexity",
            meaning="e to the power of the mean negative log-prob of a sequence: between how many equally likely "
            "tokens the policy chooses, on average.",
            also=("ppl",),
        ),
        Term(
            name="KL divergence",
            meaning="Kullback-Leibler divergence: the mean log-ratio between two policies over tokens that one of "
            "them sampled. It is 0 if the policies are equal. `kl`, `k2_kl` and `k3_kl` estimate it.",
            also=("divergence",),
        ),
        Term(
            name="total variation",
            meaning="The share of choices on which two policies differ, from 0 (equal) to 1. token_tv is for tokens, "
            "seq_tv for whole sequences.",
            also=("tv",),
        ),
        Term(
            name="surprise",
            meaning="The negative log-prob of a token under the rollout policy: large for improbable tokens.",
        ),
        Term(
            name="mismatch",
            meaning="The difference between the rollout policy and the training policy on the same tokens.",
            also=("policy mismatch", "training-inference mismatch"),
        ),
        Term(
            name="gap",
            meaning="How far the policies are apart. In tables of `diagnose`: the share of the dump's sum of squared "
            "log-ratios that comes from these rows or tokens. In `inspect`: the largest |log-ratio| of a row's tokens.",
            also=("sum_sq",),
        ),
        Term(
            name="staleness",
            meaning="The training policy was updated after the rollout policy sampled, so the tokens come from older "
            "weights. `rlcorr explain stale_policy` says how it shows.",
            also=("stale", "stale rollouts", "off-policy"),
        ),
        Term(
            name="lag",
            meaning="How many updates lie between the weights that sampled and the weights that train: the column "
            "policy_version_lag, or the difference of policy_version and step.",
            also=("policy_version_lag",),
        ),
        Term(name="on-policy", meaning="Training on tokens that the training policy itself sampled: every ratio is 1."),
    ),
    "The dump": (
        Term(
            name="dump",
            meaning="Files with one row for each response: the rollout log-probs and the training log-probs of its "
            "tokens.",
        ),
        Term(
            name="sequence",
            meaning="One sampled response: one row of a dump.",
            also=("sequences", "response", "responses", "row", "rows"),
        ),
        Term(
            name="tokens",
            meaning="A report counts valid tokens: tokens of a response that response_mask does not exclude. In tables "
            "of `diagnose` it is their share of the dump.",
            also=("valid tokens", "valid token"),
        ),
        Term(
            name="masked",
            meaning="A token that response_mask excludes from the loss, such as the output of a tool.",
            also=("mask", "masked tokens"),
        ),
        Term(
            name="prompts",
            meaning="Rows that share a prompt are not independent, so intervals draw whole prompts. group_id, "
            "prompt_id, the prompt's text or its token ids tell which rows share one (`rlcorr help "
            "intervals`).",
            also=("clusters", "cluster", "group_id", "prompt_id", "prompt"),
        ),
        Term(
            name="group",
            meaning="Rows with the same value of a column that --group-by names, such as a training step.",
            also=("groups", "group-by"),
        ),
        Term(
            name="bad rows",
            meaning="Rows that cannot be read as two policies' log-probs. `rlcorr explain problems` lists the classes; "
            "--on-bad-row says what happens to them.",
            also=("bad row", "problem", "problems found"),
        ),
        Term(
            name="quarantine",
            meaning="A file that bad rows are written to, with the reason beside each.",
            also=("quarantined",),
        ),
        Term(
            name="advantage",
            meaning="How much better a response was than others to the same prompt; the loss multiplies by it.",
        ),
        Term(name="reward", meaning="The score of a response, from which advantages are made."),
        Term(
            name="column",
            meaning="A column of the dump. Its type is what the file stores; `read as` is the standard name under "
            "which rlcorr uses it.",
            also=("read as", "type", "columns"),
        ),
        Term(
            name="on valid tokens",
            meaning="In `inspect`: the smallest, mean and largest log-prob of a column over valid tokens, and the "
            "share that is exactly 0.",
            also=("exactly 0", "zero_fraction"),
        ),
        Term(
            name="other columns",
            meaning="Columns by which `diagnose` compares rows, if the dump has them: worker, data_source, "
            "finish_reason, cached_tokens, spec_accept_rate, step, policy_version and the lag. --by names more.",
            also=("worker", "data_source", "finish_reason", "cached_tokens", "spec_accept_rate"),
        ),
        Term(
            name="token ids",
            meaning="The sampled tokens as numbers of the vocabulary: the columns token_ids, response_token_ids or "
            "response_ids. With them `diagnose` sees repetition penalties.",
            also=("response_token_ids", "id"),
        ),
        Term(
            name="#",
            meaning="In `inspect`: the place of a token in its response. The first token is #0.",
        ),
        Term(
            name="far token",
            meaning="In `inspect`: one of the five tokens of a row with the largest |log-ratio|. They are listed below "
            "the row's text.",
            also=("far tokens", "tokens of the largest gap", "furthest token"),
        ),
        Term(
            name="source_file",
            meaning="A column that `convert` and `filter` add: the file that a row comes from, and in source_row its "
            "number there, counted from 0.",
            also=("source_row",),
        ),
        Term(name="min", meaning="The smallest value."),
        Term(name="mean", meaning="The average value."),
        Term(name="max", meaning="The largest value."),
        Term(
            name="std",
            meaning="The standard deviation: how widely values spread around their mean.",
            also=("sd", "standard deviation", "deviation"),
        ),
        Term(
            name="valid tokens a sequence",
            meaning="Quantiles of the number of valid tokens in a response: 5% of the responses are shorter than the "
            "column `5%` says.",
        ),
    ),
    "Corrections": (
        Term(
            name="importance sampling",
            meaning="IS: the loss of every token (or sequence) is multiplied by its ratio, so that tokens from the "
            "rollout policy count as if the training policy had sampled them.",
            also=("IS",),
        ),
        Term(
            name="IS weight",
            meaning="The number by which a token's loss is multiplied: its ratio, after bounds. `raw` is before the "
            "bounds, `applied` after them.",
            also=("IS weights", "importance weight", "weight of a token", "raw", "applied", "token weights"),
        ),
        Term(
            name="sequence weights",
            meaning="IS weights of whole sequences: the product of their tokens' ratios. They spread much more than "
            "token weights.",
            also=("sequence-level weights", "weights of whole sequences"),
        ),
        Term(
            name="rejection sampling",
            meaning="RS: tokens or whole sequences whose statistic lies outside bounds leave the loss.",
            also=("RS", "rejection", "rejections", "rejected", "rejected by"),
        ),
        Term(
            name="plan",
            meaning="One correction as data: the weights, the rejections and their bounds. --preset, --plan, --is and "
            "--rs choose it; the plan `disabled` corrects nothing.",
            also=("plans", "correction"),
        ),
        Term(
            name="preset",
            meaning="A plan with a name. `rlcorr presets` lists them by framework, and by what they do: look (change "
            "nothing), weigh (IS weights), reject (leave tokens or sequences out), or both.",
            also=("look", "weigh", "reject", "both"),
        ),
        Term(
            name="profile",
            meaning="The formulas of one release of a framework, so that numbers match its dashboard (--profile).",
        ),
        Term(
            name="objective",
            meaning="The loss that training minimises, such as PPO's. `rlcorr help objectives` explains it.",
            also=("ppo", "gspo", "cispo", "reinforce", "dppo", "sapo", "vespo", "dro"),
        ),
        Term(
            name="bounds",
            meaning="The lowest and the highest value that a weight or a statistic may have.",
            also=("limits", "threshold", "cap", "clamped", "capped", "bound", "looser bounds"),
        ),
        Term(
            name="above high",
            meaning="The share of tokens or sequences whose raw weight is above the plan's upper bound.",
        ),
        Term(
            name="below low",
            meaning="The share of tokens or sequences whose raw weight is below the plan's lower bound.",
        ),
        Term(
            name="below 1 / high",
            meaning="The share of tokens or sequences whose raw weight is below 1 divided by the upper bound. A plan "
            "without a lower bound has this column: it is as far below 1 as the upper bound is above.",
        ),
        Term(
            name="eff_sample_size",
            meaning="Effective sample size of the weights, as a share of tokens or sequences.",
            metric="rollout_is_eff_sample_size",
        ),
        Term(
            name="what is kept",
            meaning="Numbers for all tokens (before) and for the tokens that the plan keeps (after).",
            also=("before", "after", "after rejection"),
        ),
        Term(
            name="keeps",
            meaning="The bounds of the statistic: what lies between them is kept.",
        ),
        Term(
            name="tokens lost",
            meaning="The share of tokens that a rejection removes from the loss.",
            also=("lost", "sequences hit", "all together"),
        ),
        Term(
            name="not capped",
            meaning="In `sweep` of weights: the share of weights that lie within the bound.",
        ),
        Term(
            name="curve",
            meaning="In `sweep`: the values at each pair of bounds, from the tightest to the loosest. As a feature of "
            "`diagnose`: the share of the gap that any smooth function of the rollout log-prob explains.",
        ),
        Term(
            name="target",
            meaning="The share of the batch that `sweep --target-keep` or `--target-ess` asks for.",
            also=("target keep", "target ESS"),
        ),
        Term(
            name="mistake",
            meaning="A wrong way to apply the plan, such as applying the correction twice. `size` is the length of its "
            "gradient relative to the plan's, `cos` the cosine of the two.",
            also=("cos", "mistakes"),
        ),
        Term(
            name="none, as the plan says",
            meaning="The row of the objective's mistakes that makes none: the plan as it is, which the others are "
            "compared with.",
        ),
        Term(
            name="no correction",
            meaning="As a mistake: the weights and rejections of the plan are left out. As a plan: `disabled`.",
            also=("uncorrected",),
        ),
        Term(
            name="correction applied twice",
            meaning="A mistake: the ratio to the rollout policy stands in the loss, and the IS weights as well.",
            also=("twice",),
        ),
        Term(
            name="sequence mean instead of token mean",
            meaning="A mistake: the loss is averaged over sequences where the plan averages over tokens, or the other "
            "way round.",
            also=("token mean instead of sequence mean", "average"),
        ),
        Term(
            name="clip_low",
            meaning="How far below 1 the objective lets a ratio go before it clips it; clip_high: how far above 1. "
            "dual_clip bounds the loss of a token of negative advantage.",
            also=("clip_high", "dual_clip"),
        ),
        Term(
            name="clip_fraction", meaning="The share of tokens whose loss is limited by PPO's clip.", also=("clipped",)
        ),
        _metric("eff seqs", "effective_sequences", "The effective number of sequences in the gradient."),
        _metric("to none", "cos_to_none", "The cosine between this plan's gradient and that of no correction."),
        _metric("to seq IS", "cos_to_sequence_is", "The cosine between this plan's gradient and that of sequence IS."),
    ),
    "Columns of compare and sweep": (
        _metric(
            "advantage error",
            "shift",
            "How far the plan's mean advantage is above that of true sequence weights, which is the training policy's; "
            "with its 95% interval.",
        ),
        _metric("top 1%", "top_1pct", "The share of the gradient in the heaviest hundredth of the sequences."),
        _metric("k3 left", "k3_left", "How far apart the policies are on the tokens that the plan keeps."),
        Term(
            name="ESS",
            meaning="Effective sample size: how many equally weighted samples would count as much, as a share of all. "
            "1 means that all weights are equal; near 0, a few weights dominate.",
            also=("effective sample size", "effective sequences"),
            metric="ess",
        ),
        Term(name="take", meaning="The plan that `compare` recommends.", also=("cannot tell",)),
        Term(
            name="flag",
            meaning="What kind of gap `compare` sees: near, weight, outliers, moved or far.",
            also=("flags",),
        ),
    ),
    "A report": (
        Term(
            name="story",
            meaning="What is said of a dump first, the same in every command: the likely cause, the faults and what to "
            "do. In JSON it has first, effect, certainty, headline, faults and do.",
        ),
        Term(
            name="first",
            meaning="In a story: the name of the first fault, else of the likely cause, else unclear, none or too_few. "
            "In a course: the first step.",
        ),
        Term(
            name="effect",
            meaning="In a story: what the worst finding means for other commands. fault: `check` fails and `filter` "
            "stops. warning: training can live with it, mend it. none: nothing to do.",
        ),
        Term(
            name="certainty",
            meaning="Of a cause: proven (a bound or an identity is broken), likely (the statistics say so), one of "
            "(another reading is as good) or unclear (no cause is named).",
        ),
        Term(name="proven", meaning="A certainty: the data break a bound or an identity, so the cause is sure."),
        Term(name="likely", meaning="A certainty: the statistics point to this cause.", also=("likely cause",)),
        Term(
            name="alternatives",
            meaning="The other causes that fit the data as well as the named one, if its certainty is `one of`.",
        ),
        Term(
            name="one of",
            meaning="A certainty: two readings fit the data as well; the cause is one of them.",
        ),
        Term(
            name="no_cause",
            meaning="A verdict that names nothing: no known cause explains enough of the gap. Its certainty is "
            "unclear.",
            also=("unclear",),
        ),
        Term(
            name="none",
            meaning="As a cause: the policies are equal, there is no gap to explain. As an effect: nothing to do.",
        ),
        Term(
            name="headline",
            meaning="In a story: the first finding in a sentence or two.",
            also=("conclusion", "what"),
        ),
        Term(
            name="faults",
            meaning="What makes numbers and corrections meaningless until it is fixed, such as rows that do not belong "
            "together. `filter` stops at them, `check` fails.",
            also=("fault", "by a fault"),
        ),
        Term(
            name="warning",
            meaning="A rule that is broken, or a cause that training can live with. It fails no check.",
            also=("warn", "warned", "warnings"),
        ),
        Term(
            name="do",
            meaning="In a story: at most three actions, most useful first.",
            also=("what to do", "action", "advice", "fix", "cure"),
        ),
        Term(
            name="cause",
            meaning="Why the policies differ. `rlcorr explain causes` lists all that are known.",
            also=("causes", "rank"),
        ),
        Term(
            name="anomaly",
            meaning="Something wrong with a whole file, such as a shifted column.",
            also=("anomalies", "suspicions", "suspicion"),
        ),
        Term(
            name="verdict",
            meaning="How far apart the policies are, and which weights stay usable: equal, same, close, apart, far, "
            "void or too few. In `diagnose`: the name of the likely cause.",
            also=("level of a verdict",),
        ),
        Term(name="equal", meaning="Verdict: both columns hold the same numbers on every token."),
        Term(name="same", meaning="Verdict: the same policy up to rounding; k3_kl is below 1e-6."),
        Term(name="close", meaning="Verdict: k3_kl is below 0.01. Token weights correct the gap at hardly any cost."),
        Term(
            name="apart",
            meaning="Verdict: k3_kl is between 0.01 and 0.1. Look for the cause; use token weights meanwhile.",
        ),
        Term(
            name="far",
            meaning="Verdict: a rule on the policies fails, or half of the effective tokens are gone. Find out what is "
            "wrong before you train.",
            also=("far apart",),
        ),
        Term(
            name="void",
            meaning="No verdict: something in the data makes the numbers meaningless. Fix it first.",
            also=("no verdict",),
        ),
        Term(
            name="too few",
            meaning="There is not enough data to tell: a verdict needs 32 sequences and 5 prompts.",
            also=("too few to tell",),
        ),
        Term(
            name="usable",
            meaning="Weights are usable if their rules hold: then no small part of them dominates every mean.",
            also=("unsure",),
        ),
        Term(
            name="course",
            meaning="How the numbers develop over training steps: the first, the last and the worst step, since when "
            "they rise and by how much.",
            also=(
                "by step",
                "steps",
                "course over steps",
                "last",
                "worst",
                "onset",
                "trend over steps",
                "doubling time",
            ),
        ),
        Term(
            name="metric",
            meaning="A number of a report. `rlcorr explain metrics` lists all of them.",
            also=("value", "key figures", "metrics", "other"),
        ),
        Term(name="ideal", meaning="The value of a metric if both policies are equal."),
        Term(name="formula", meaning="How a metric is computed. `rlcorr explain symbols` lists the letters."),
        Term(
            name="rule",
            meaning="A limit on a metric. A broken rule is marked `!`; `rlcorr explain rules` lists the defaults.",
            also=("rules", "limit", "severity", "check", "checks that fail or warn", "other checks", "health"),
        ),
        Term(name="remedy", meaning="What to do about a broken rule."),
        Term(
            name="result", meaning="Whether a check passed, warned or failed.", also=("status", "passed", "fail", "ok")
        ),
        Term(
            name="section",
            meaning="Which rows a check or a comparison is about: the whole dump, one group, or one step.",
            also=("whole dump", "all dumps"),
        ),
        Term(
            name="what was read",
            meaning="The files of a report (`input`: path, size and when it was last changed), their rows and tokens, "
            "the columns and the plan.",
            also=("input", "rows and tokens"),
        ),
        Term(name="count", meaning="How many there are."),
        Term(
            name="sample size",
            meaning="How much of the sample is left when tokens or sequences weigh unequally: effective sample sizes "
            "(ESS), Pareto k, and the share of ratios near 1 (retention).",
        ),
        Term(
            name="picture",
            meaning="A drawing of a report: overview, metrics, ratio, surprise, scatter, position, length, weights, "
            "staleness, compare or diagnose. `rlcorr help pictures` says what each shows.",
            also=("pictures", "overview", "scatter"),
        ),
        Term(
            name="baseline",
            meaning="In `check`: a saved report that new numbers are compared with. A change fails only if it is "
            "larger than the limit and its 95% interval excludes 0.",
        ),
        Term(
            name="95% interval",
            meaning="The range that contains the true value in 95 of 100 cases, found by resampling whole prompts "
            "(bootstrap). `rlcorr help intervals` says how far to trust it.",
            also=("interval", "95%", "confidence interval", "bootstrap", "intervals", "k3_interval", "gap_interval"),
        ),
        Term(
            name="log_ratio at",
            meaning="Quantiles of the log-ratio: 5% of the tokens lie below the column `5%`. They are counted in a "
            "histogram, so each value is right to within 0.4% of its size.",
            also=("value ±0.4%",),
        ),
        Term(
            name="log counts",
            meaning="The bars of the histogram are logarithms of counts, so that rare values show.",
        ),
        _metric("seq ESS", "seq_ess", "Effective sample size of raw sequence weights."),
        _metric("IS ESS", "rollout_is_eff_sample_size", "Effective sample size of the plan's weights."),
        _metric("ppl ratio", "ppl_ratio", "The ratio of the two policies' perplexities."),
        _metric("mean ratio", "ratio_mean", "The mean of all tokens' ratios."),
        Term(
            name="Pareto k",
            meaning="How heavy the tail of raw weights is. Above 0.7, a few weights dominate every mean. The metrics "
            "pareto_k_token and pareto_k_seq.",
        ),
        Term(
            name="correlation",
            meaning="How closely two series follow one line: 1 means exactly. prob_pearson is that of the "
            "probabilities under both policies.",
            also=("pearson",),
        ),
    ),
    "diagnose": (
        Term(
            name="sd of log-ratio",
            meaning="The standard deviation of the log-ratio over all tokens.",
            metric="log_ratio_std",
        ),
        Term(
            name="core",
            meaning="In JSON: the typical difference between the policies in log-odds, without rare outliers.",
        ),
        Term(name="expected", meaning="The share of the gap that the surprise of these tokens alone predicts."),
        Term(
            name="size",
            meaning="In `diagnose`: how far apart the policies are on a typical token of these rows, relative to all "
            "other rows. Of a mistake: the length of its gradient relative to the plan's.",
        ),
        Term(
            name="hot",
            meaning="Rows that stand out, beyond chance, by size and by share of the gap; tables mark them `!`.",
            also=("stands out",),
        ),
        Term(
            name="typical |r|",
            meaning="The typical absolute difference between the policies, with the effect of surprise taken out.",
            also=("r", "typical token"),
        ),
        Term(
            name="from token",
            meaning="The first token of a range of places in the response.",
            also=("from", "place", "place in the response"),
        ),
        Term(
            name="share",
            meaning="The part of the gap that a cause explains; `share_bound` says whether it is at least or at most "
            "that much, `token_share` on which share of the tokens.",
            also=("share_bound", "share_interval", "token_share", "at least", "at most"),
        ),
        Term(
            name="parameter",
            meaning="A number of a cause, such as the temperature that explains the gap.",
            also=("parameters",),
        ),
        Term(
            name="evidence",
            meaning="The numbers that point to a cause.",
            also=("features", "facts", "fact"),
        ),
        Term(
            name="is_minor",
            meaning="In JSON: the cause holds, but explains too little of the gap to be the verdict.",
            also=("minor",),
        ),
        Term(name="level", meaning="One value of a column, such as worker w3.", also=("levels",)),
        Term(name="turn", meaning="A run of valid tokens between tool calls.", also=("turns", "by turn")),
        Term(
            name="z",
            meaning="How many standard errors a value is away from what chance alone would give.",
            also=("trend_z",),
        ),
        Term(
            name="R2",
            meaning="The share of the variation that a fit explains, from 0 to 1.",
            also=("R²",),
        ),
        Term(
            name="what is left",
            meaning="The part of the gap that the named causes do not explain.",
            also=("the rest",),
        ),
        Term(
            name="not looked for",
            meaning="Causes that cannot be checked because the dump lacks a column.",
            also=("not checked",),
        ),
    ),
    "Features of a diagnosis, in JSON": (
        _feature(
            "mean_rho",
            "the mean of e^l over tokens, which is 1 if the tokens were sampled as logged.",
            "mean_rho_error",
        ),
        _feature("mean_inverse_rho", "the mean of e^-l over tokens.", "mean_inverse_rho_error"),
        _feature("positive_fraction", "the share of tokens with l > 0."),
        _feature("d_core", "the typical difference in log-odds, d, of tokens of equal surprise."),
        _feature("d_tail", "the root mean square of d over d_core: 1 for normal noise, more for a heavy tail."),
        _feature(
            "d_n_far",
            "the number of tokens that are more than six d_core off, and d_below the share of these that lost.",
            "d_below",
        ),
        _feature("d_fan", "how much wider d spreads among sure tokens than among tokens of probability 1/2."),
        _feature(
            "line_u_slope",
            "a straight line of d on the rollout log-odds u, or on the training log-odds v: its slope with its error, "
            "the share r2 of the variation of d that it explains, and how closely both log-odds match. high and low: "
            "of the tokens whose log-odds are above 1, or below -1.",
            *_LINES[1:],
        ),
        _feature(
            "lean", "how much more than chance rows differ in the share of tokens with l > 0, and its z.", "lean_z"
        ),
        _feature(
            "advantage_correlation", "the correlation of that share with the advantage, and its z.", "advantage_z"
        ),
        _feature(
            "step_cut",
            "how many tokens have a rollout log-prob of exactly 0, as top-p leaves; step_bound is the top-p that fits "
            "best, with step_errors wrong among step_judged tokens; step_least_left is the least that it leaves to "
            "other tokens.",
            *(f"step_{name}" for name in ("bound", "errors", "judged", "least_left")),
        ),
        _feature(
            "by_token",
            "the share of the variation of d that goes with the token's id, its error, and the least of it without "
            "one prompt.",
            "by_token_error",
            "by_token_least",
        ),
        _feature(
            "repeated_difference",
            "the mean d of repeated tokens minus that of new ones, and repeated_share of the variation that makes.",
            "repeated_share",
        ),
        _feature("odd_rows", "the number of rows whose two columns do not belong together."),
    ),
    "A plan as a file": (
        Term(name="mode", meaning="decoupled: the trained policy is old_log_probs. bypass: current_log_probs."),
        Term(
            name="loss",
            meaning="In a plan: ppo_clip (the loss has PPO's clip) or reinforce (it has none). Of an "
            "objective: its value.",
            also=("ppo_clip",),
        ),
        Term(
            name="log_ratio_limit",
            meaning="Log-ratios are limited to plus and minus this before e^l is taken; limit_on says of what: reduced "
            "(of a sequence's sum or mean), token (of each token) or first (of each token, before all else).",
            also=("limit_on",),
        ),
        Term(
            name="rollout_is",
            meaning="A key of verl's config: the scope of the weights, token or sequence. rollout_is_threshold is "
            "their upper bound.",
            also=("rollout_is_threshold",),
        ),
        Term(name="weighting", meaning="How a plan weights: scope, low, high, outside, normalize, of and gate."),
        Term(
            name="scope",
            meaning="What is weighted or judged as one: token, sequence or geometric of weights; token, "
            "seq_sum, seq_mean, seq_max or seq_min of rejections. In a CSV file: total or group.",
        ),
        Term(
            name="outside",
            meaning="What becomes of a weight outside its bounds: clamp (the nearer bound), zero, or cap "
            "(only the upper bound clamps).",
        ),
        Term(name="normalize", meaning="Whether weights are divided by their mean over the batch: none or batch."),
        Term(
            name="of",
            meaning="In a plan: which ratio is meant. mismatch: old / rollout; drift: current / old; total: current / "
            "rollout.",
        ),
        Term(
            name="gate",
            meaning="For which tokens a weight or a rejection holds, by the sign of the advantage: any, "
            "positive, negative, nonpositive, nonnegative, or onward (the ratio moves on as the advantage pushes).",
        ),
        Term(name="statistic", meaning="What a rejection bounds. `rlcorr explain statistics` lists all of them."),
    ),
    "diff": (
        Term(name="A", meaning="In `diff`: the first dump. B is the second."),
        Term(
            name="B",
            meaning="In `diff`: the second dump, which is compared with A. C, D and so on are further ones. Below `B "
            "moved` stands whether a metric of B moved from A.",
            also=("C", "B moved", "C moved"),
        ),
        Term(
            name="change",
            meaning="B against A: a ratio (x 1.50) for metrics that are never negative, else a difference.",
        ),
        Term(
            name="p Holm",
            meaning="The probability of a change at least this large by chance, corrected by Holm's method for the "
            "number of metrics tested. Below 0.05 the metric moved.",
            also=("p", "holm"),
        ),
        Term(
            name="no evidence",
            meaning="Chance alone can give such a change. This does not prove that nothing changed.",
        ),
        Term(
            name="smallest detectable change",
            meaning="The smallest change that this amount of data would have shown.",
            also=("would have been seen",),
        ),
        Term(
            name="pairs",
            meaning="Rows that are in both dumps; their differences are compared row by row.",
            also=("pair", "paired"),
        ),
    ),
    "index": (
        Term(
            name="report", meaning="What `analyze` found in one dump. Saved as .json or .rlcorr, it can be read again."
        ),
        Term(
            name="dump changed",
            meaning="In `index`: when the newest file of the dump was last changed, in UTC. Reports stand in this "
            "order.",
            also=("changed",),
        ),
        Term(name="last k3_kl", meaning="In `index`: k3_kl of the dump's last step.", metric="k3_kl"),
    ),
}
"""Heading of the page -> its terms."""


def key_of(name: str) -> str:
    """What a name is looked up by: `seq ESS`, `seq-ess` and `seq_ess` are the same, and so are `1%` and `1 %`; single
    letters keep their case."""
    words = name.strip().replace(" %", "%")
    return words if len(words) == 1 else re.sub(r"[\s_-]+", "_", words.lower())


BY_KEY: Mapping[str, Term] = {
    key_of(name): term for terms in GLOSSARY.values() for term in terms for name in term.names
}
"""A name's key -> its term."""
