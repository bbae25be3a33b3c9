"""COLUMNS: what the columns of a dump are, and what frameworks call them.

Names seen in dumps of sixteen frameworks; those that mean different things in different frameworks are kept apart
(AMBIGUOUS) and are only ever suggested.  Which column of a dump is taken is settled in `reading/columns.py`.
"""

from rlcorr_cli.layouts.recognise import STEP_COLUMNS as STEPS

COLUMNS: dict[str, str] = {
    "rollout_log_probs": "of each sampled token under the policy that sampled it",
    "old_log_probs": "the same under the training policy at batch time",
    "current_log_probs": "the same after updates; --mode bypass compares this one",
    "prefill_log_probs": "the same by the rollout engine in one forward pass, to split a gap over its legs",
    "response_mask": "1 for each token that counts; without it all count",
    "advantages": "of a sequence or of each token, for plans that use its sign",
    "reward": "of the sequence, to show what a rejection does to the mean",
    "step": "the training step, to group by and for budgets",
    "policy_version": "the version of the weights that sampled, for staleness",
    "sample_id": "the id of a row, for --row and for `filter`",
    "rollout_ids": "the rollout that a row is a sample of, for --profile slime",
    "response_token_ids": "the ids or the texts of its tokens, to show them and to find what a gap depends on",
    "prompt": "its prompt, as text, messages or token ids: rows of one prompt are drawn together",
}
"""Canonical name -> what the column holds."""

PROMPT_TEXTS = ("prompt", "prompts", "prompt_text", "prompt_token_ids", "prompt_ids", "prompt_tokens")
"""Columns that hold a prompt itself: its text, its messages or its token ids."""
PROMPT_IDS = "prompt_token_ids"
TOKENS = ("response_tokens", "tokens", "response_token_ids", "response_ids", "completion_ids", "responses", "token_ids")
"""Columns that name a row's tokens, if there are as many as log-probs."""

ALIASES: dict[str, tuple[str, ...]] = {
    "rollout_log_probs": (
        *("rollout_logprobs", "generation_logprobs", "generation_log_probs", "inference_logprobs", "infer_logprobs"),
        *("infer_log_probs", "sampling_per_token_logps", "sampling_logprobs", "sampler_logprobs", "sampled_logprobs"),
        *("vllm_logprobs", "completion_logprobs", "response_logprobs", "output_logprobs", "behavior_log_probs"),
        *("behav_logp", "mu_log_probs"),
    ),
    "old_log_probs": (
        *("prev_logprobs", "action_log_probs", "old_per_token_logps", "prox_logp", "proximal_logprobs"),
        *("actor_logprobs", "actor_log_probs", "old_logprobs", "old_logprob"),
    ),
    "current_log_probs": (
        *("trainer_logprobs", "training_logprobs", "curr_logprobs", "per_token_logps", "new_logprobs"),
        *("local_logprobs", "log_prob"),
    ),
    "prefill_log_probs": ("prefill_logprobs", "rollout_prefill_log_probs", "rescored_log_probs"),
    "response_mask": (
        *("loss_mask", "loss_masks", "local_loss_mask", "token_loss_mask", "token_mask", "action_mask"),
        *("completion_mask", "sampled_mask"),
    ),
    "advantages": ("advantage",),
    "reward": ("raw_reward", "score", "scores", "total_reward", "reward_score"),
    "step": STEPS[1:],
    "policy_version": (
        *("param_version", "rollout_param_version", "sampling_client_step", "generation_weight_version"),
        *("rollout_weight_version", "weight_version", "model_version", "head_version"),
    ),
    "sample_id": (
        *("index", "sample_index", "sample_indices", "sample_idx", "idx", "request_id", "rollout_position"),
        *("_ng_rollout_index", "traj_idx", "rid"),
    ),
    "rollout_ids": (),
    "response_token_ids": tuple(name for name in TOKENS if name != "response_token_ids"),
    "prompt": PROMPT_TEXTS[1:],
}
OF_ROWS = {"response_token_ids": TOKENS[:1], "prompt": ("prompt", "prompt_token_ids")}
"""Names that --map may give to what only stands beside the log-probs -> names by which it is then looked for."""
LEVELS: dict[str, tuple[str, ...]] = {
    "step": STEPS,
    "policy_version": ("policy_version", *ALIASES["policy_version"]),
    "lag": ("policy_version_lag",),
    "worker": ("worker", "worker_id", "engine", "engine_id", "replica", "server", "rank"),
    "data_source": ("data_source", "source", "dataset", "env", "environment", "task"),
    "finish_reason": ("finish_reason", "stop_reason", "status"),
    "prompt_length": ("prompt_length", "prompt_len", "n_prompt_tokens", "num_prompt_tokens", "total_prompt_tokens"),
    "cached_tokens": ("cached_tokens", "num_cached_tokens"),
    "spec_accept_rate": ("spec_accept_rate",),
    "group_id": ("group_id", "prompt_group", "prompt_id", "uid", "group_index"),
}
"""What a gap between policies may sit in, level by level -> what columns of it are called, the first that is there."""

PROMPTS = (
    *("group_id", "prompt_group", "prompt_id"),
    *PROMPT_TEXTS,
    *("uid", "group_index", "group_idx", "example_id", "problem_id", "instance_id"),
)
"""Columns that tell which rows are samples of one prompt, the first that is there: by a name, by the prompt itself, or
by what some frameworks write for either."""

NO_CLUSTERS = "none"
"""What --cluster-by takes for: every row is drawn by itself."""
ROLLOUTS = "rollout"
"""What clusters are by where no column tells: rows of one rollout."""

KEPT_OFFSETS = "rollout_sampling_mask_offsets"
KEPT_SETS = ("sampling_mask", KEPT_OFFSETS, "kept_set_size")
"""Columns that list the ids of the tokens that each token was chosen among, or tell where they begin, or how many there
are."""
ENTROPIES = ("entropy", "entropies", "entropys", "token_entropy", "token_entropies")
"""Columns that hold the entropy of the distribution that each token was drawn from, if there are as many as tokens."""

PADDING = ("attention_mask", "prompt_mask")
"""Which of a prompt's ids, or of those of prompt and response, are no padding."""
OTHERS = (
    *("ref_log_probs", "policy_version_end", "policy_version_lag", "weight_versions", "normalized_reward"),
    *("total_prompt_tokens", "spec_accept_length", "is_masked"),
)
NAMED = {*COLUMNS, *(alias for aliases in ALIASES.values() for alias in aliases), *ENTROPIES, *PADDING, *OTHERS}
"""Columns of these names, whatever they are."""

AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "rollout_log_probs": ("logprobs", "transition_scores"),
    "old_log_probs": ("log_probs", "train_log_probs"),
    "current_log_probs": ("train_log_probs", "log_probs"),
}
