"""LAYOUTS: the kinds of files that frameworks write, one row each, and which of them a file is.

Loads nothing heavy, because options name the rows; what reads a file is loaded with the first of its kind.
"""

from rlcorr_cli.layouts.json_layouts import JSON_LAYOUTS
from rlcorr_cli.layouts.layout import BatchLayout, Held, Layout, later
from rlcorr_cli.layouts.recognise import (
    FileStart,
    by_capture,
    by_dashboard,
    by_keys,
    by_monitor,
    by_pickle,
    by_torch_keys,
)


def _transfer_queue(start: FileStart) -> str | None:
    """By the first key and the TensorDict behind it."""
    is_batch = start.words[:1] == ("tensordict",) and "tensordict._reductions" in " ".join(start.words[1:3])
    return "torch.save of tensordict, tags, keys, global_steps" if is_batch else None


SLIME_LEFT_OUT = "evaluations, and files without log-probs, are read only where no others are named."
BINARY_LAYOUTS = (
    Layout(
        name="miles",
        framework="miles",
        title="miles' rollout_data/{id}.pt and train_data/{id}_{rank}.pt",
        suffixes=(".pt", ".jsonl"),
        recognise=later("slime.of_miles"),
        open=later("slime.open_unit"),
        files_of_a_step=later("slime.files_of_a_step"),
        left_out=SLIME_LEFT_OUT,
        trained=True,
    ),
    Layout(
        name="miles-dashboard",
        framework="miles",
        title="miles' dashboard_columns/rollout_{id}.parquet",
        suffixes=(".parquet",),
        recognise=by_dashboard,
        open=later("slime.open_dashboard"),
        files_of_a_step=later("slime.dashboards"),
        left_out="evaluations are read only where no others are named.",
    ),
    Layout(
        name="miles-policy-loss",
        framework="miles",
        title="miles' policy_loss_debug/rank_{rank}_call_{call}.pt",
        suffixes=(".pt",),
        recognise=by_torch_keys("rank", "call", "samples"),
        open=later("slime.open_policy_loss"),
        trained=True,
    ),
    Layout(
        name="llama-cpp",
        framework="llama.cpp",
        title="llama.cpp's /completion responses",
        recognise=by_keys("content", "completion_probabilities|tokens_predicted"),
        open=later("engine_lines.open_llama_cpp"),
    ),
    Layout(
        name="ollama",
        framework="Ollama",
        title="Ollama's responses",
        recognise=by_keys("created_at", "done", "response|message"),
        open=later("engine_lines.open_ollama"),
    ),
    Layout(
        name="tgi",
        framework="TGI",
        title="TGI's /generate responses",
        recognise=by_keys("generated_text", "details|token"),
        open=later("engine_lines.open_tgi"),
    ),
    Layout(
        name="openai",
        framework="vLLM and OpenAI",
        title="responses of vLLM, SGLang or OpenAI",
        recognise=later("openai.recognise"),
        open=later("openai.open_responses"),
    ),
    Layout(
        name="prime-rl-batches",
        framework="prime-rl",
        title="prime-rl's rank_{R}.bin",
        suffixes=(".bin",),
        recognise=later("packed_batches.recognise"),
        open=later("packed_batches.open_rank"),
        left_out="the run's monitor has the same sequences, with the trainer's log-probs.",
    ),
    Layout(
        name="prime-rl-monitor",
        framework="prime-rl",
        title="prime-rl's monitors/file/traces",
        suffixes=(".jsonl", ".jsonl.zst"),
        recognise=by_monitor,
        open=later("prime_monitor.open_run"),
        files_of_a_step=later("prime_monitor.monitor_units"),
        left_out="the chunk that it was sealed from is beside it.",
        beside=later("prime_monitor.annotations_beside"),
        covers=("prime-rl-batches",),
        added_to=True,
        trained=True,
        trained_later=True,
    ),
    Layout(
        name="roll",
        framework="ROLL",
        title="ROLL's step_{N}.pkl of rollout_mock",
        suffixes=(".pkl",),
        recognise=by_pickle("roll.distributed.scheduler.protocol DataProto"),
        open=later("padded.ROLL.open"),
    ),
    Layout(
        name="skyrl",
        framework="SkyRL",
        title="SkyRL's global_step_{N}_training_input.pkl",
        suffixes=(".pkl",),
        recognise=by_pickle("skyrl.backends.skyrl_train.training_batch ", "skyrl_train.training_batch "),
        open=later("padded.SKYRL.open"),
        trained=True,
    ),
    Layout(
        name="slime",
        framework="slime",
        title="slime's rollout_data/{id}.pt and train_data/{id}.pt",
        suffixes=(".pt",),
        recognise=later("slime.of_slime"),
        open=later("slime.open_unit"),
        files_of_a_step=later("slime.files_of_a_step"),
        left_out=SLIME_LEFT_OUT,
        trained=True,
    ),
    Layout(
        name="tinker",
        framework="tinker-cookbook",
        title="tinker-cookbook's capture.sqlite, wire_rows or capture/sample.jsonl",
        suffixes=(".sqlite", ".jsonl", ".arrow", ".parquet"),
        recognise=by_capture,
        open=later("tinker.open_capture"),
        files_of_a_step=later("tinker.one_form"),
        left_out="it is another form of the same capture.",
    ),
    Layout(
        name="verl",
        framework="verl",
        title="verl's DataProto",
        suffixes=(".dp", ".pkl"),
        recognise=by_pickle("verl.protocol DataProto"),
        open=later("padded.VERL.open"),
        trained=True,
    ),
    Layout(
        name="verl-tq",
        framework="verl",
        title="verl's tq_batch.pt",
        suffixes=(".pt",),
        recognise=_transfer_queue,
        open=later("padded.VERL_TQ.open"),
    ),
)
LAYOUTS = tuple(sorted((*BINARY_LAYOUTS, *JSON_LAYOUTS), key=lambda layout: layout.name))


def _batch(title: str, home: str, *keys: str) -> BatchLayout:
    return BatchLayout(title=title, keys=keys, names=later(f"{home}names"), columns=later(f"{home}columns"))


BATCHES = {
    "trl": _batch("a batch of GRPOTrainer", "padded.trl_", "prompt_ids", "completion_ids", "completion_mask"),
    "areal": _batch("a dict of PPOActor", "trainers.AREAL.", "input_ids", "loss_mask", "logprobs", "attention_mask"),
    "ms-swift": _batch("a GRPOBatch", "trainers.MS_SWIFT.", "completion_mask", "seq_lengths", "input_ids"),
    "nemo-rl": _batch("a BatchedDataDict", "trainers.NEMO_RL.", "input_ids", "token_mask", "generation_logprobs"),
    "open-instruct": _batch(
        "CollatedBatchData", "trainers.OPEN_INSTRUCT.", "query_responses", "response_masks", "vllm_logprobs"
    ),
    "openrlhf": _batch("an Experience", "trainers.OPENRLHF.", "sequences", "action_mask"),
    "prime-rl": _batch("micro batches", "trainers.PRIME_RL.", "input_ids", "inference_logprobs", "loss_mask"),
    "roll": _batch("a DataProto", "padded.ROLL.", "input_ids", "prompt_mask", "response_mask"),
    "skyrl": _batch("a TrainingInputBatch", "padded.SKYRL.", "sequences", "response_mask", "loss_mask"),
    "slime": _batch("train data", "slime_train.batch_", "tokens", "response_lengths", "loss_masks"),
    "slime-samples": _batch("a list of Sample", "slime.batch_", "tokens", "response_length", "loss_mask"),
    "tinker": _batch("loss_fn_inputs of Datums", "trainers.TINKER.", "target_tokens", "logprobs", "mask"),
    "verl": _batch("a DataProto", "padded.VERL.", "input_ids", "responses", "response_mask"),
}
"""Batches in memory, by the framework's name."""
NAMES = tuple(layout.name for layout in LAYOUTS)
TRAINED = frozenset(layout.name for layout in LAYOUTS if layout.trained)
ADDED_TO = frozenset(layout.name for layout in LAYOUTS if layout.added_to)
TRAINED_LATER = frozenset(layout.name for layout in LAYOUTS if layout.trained_later)
SUFFIXES = tuple(dict.fromkeys(suffix for layout in LAYOUTS for suffix in layout.suffixes))


def layout(name: str) -> Layout:
    """The layout of that name."""
    return LAYOUTS[NAMES.index(name)]


def recognised(start: FileStart) -> tuple[str, str] | None:
    """The name of the layout that a file is of, and the sign; None of a file that is of none."""
    for row in LAYOUTS:
        # Answers of engines are kept under any name.
        if start.name.lower().endswith(row.suffixes) or (".jsonl" in row.suffixes and start.row):
            sign = row.recognise(start)
            if sign is not None:
                return row.name, sign
    return None


def batch_layout(held: Held) -> tuple[str, BatchLayout] | None:
    """The framework that a batch in memory is of, by its keys, and its layout; None of a batch of none."""
    if held.framework:
        return held.framework, BATCHES[held.framework]
    return next((row for row in BATCHES.items() if all(held.values.get(key) is not None for key in row[1].keys)), None)
