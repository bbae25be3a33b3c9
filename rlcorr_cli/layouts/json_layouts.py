"""JSON_LAYOUTS: one Layout for each framework that writes JSON lines; json_rows.py reads files by its JsonLines.

An entry says by which keys a first line is known, and from which key each column is read.  `parts` names a function
where a line is not one row as it stands; `check` is called before a file is read.  Loads nothing heavy, because options
name the entries.
"""

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal

from rlcorr_cli.errors import DataError, NoRollouts, UnfinishedStep
from rlcorr_cli.frozen import frozen
from rlcorr_cli.layouts.layout import Layout, LeftOut, OpenedDump, each_alone, later
from rlcorr_cli.layouts.nested import log_probs_in
from rlcorr_cli.layouts.recognise import FileStart, by_keys, monitor_file
from rlcorr_cli.layouts.response_lines import EACH_LINE, SGLANG, Stream

Key = tuple[str, bytes]
"""A key, and a regular expression that its value must begin with (b"" for any)."""


@frozen
class From:
    """Where a column is read from.

    kind: a key of json_rows.KINDS, which reads it and types the column.  key: 'a'; 'a.b' inside an object; 'a|b' the
    first that is present; '{a}/{b}' whole numbers joined as text (kind 'joined'), null if one is null.  After `parts`
    it names what that function yields, not the framework's key.  optional: whether a row may lack the key.
    """

    kind: Literal["floats", "integers", "mask", "number", "whole", "text", "version", "joined"]
    key: str
    optional: bool = False


@frozen(kw_only=True)
class JsonLines:
    """How files of JSON lines are read, each a unit of its own: what `Layout.open` is of such a layout.

    columns: canonical or other -> where it is read from, lists in the order in which messages compare their lengths.
    Without a response_mask every token counts.  only_with: column -> the key that some line must have, else the column
    is left out; the whole file is looked through for it.  from_path: columns of whole numbers that a pattern finds in
    the path.
    parts: from a line's object and its number from 0 to the objects that become rows; a list may be a NumPy array.
    surveyed: what rows are, as 'response', where all parts of a file are looked at first for what gives no row; then
    optional columns of which no row has a value are left out.
    stream: how several lines become one response, if they do.
    span: whether rows are cut to the first to last token of the mask.  zeroed_by: where this key is 0, the mask is
    all 0.  check: asked of a path before it is read; a DataError, or more notes.
    notes, missing_policy_hint: as in OpenedDump.  notes_with: notes on files that have a key.
    """

    columns: Mapping[str, From]
    only_with: Mapping[str, Key] = field(default_factory=dict[str, Key])
    from_path: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Callable[[dict[str, Any], int], Iterable[Mapping[str, Any] | LeftOut]] = lambda row, number: (row,)
    surveyed: str = ""
    stream: Stream = EACH_LINE
    span: bool = False
    zeroed_by: str = ""
    check: Callable[[str], tuple[str, ...]] = lambda path: ()
    notes: tuple[str, ...] = ()
    notes_with: Mapping[str, Key] = field(default_factory=dict[str, Key])
    missing_policy_hint: str = ""

    def __call__(self, paths: Sequence[str]) -> OpenedDump:
        """One file."""
        return later("json_rows.opened_lines")(self, *paths)


def _nemo_gym(start: FileStart) -> str | None:
    """By its keys; a batch API's response has a body instead of output."""
    response = start.row.get("response")
    is_rollout = "responses_create_params" in start.row and isinstance(response, dict) and "output" in response
    return "keys responses_create_params, response with output" if is_rollout else None


OPEN_INSTRUCT_METADATA = ("run_name", "git_commit", "model_name", "timestamp")


def _open_instruct(start: FileStart) -> str | None:
    """Rollouts, or the file beside them that tells the run's name and no more."""
    rollouts = by_keys("prompt_tokens", "response_tokens", "prompt_idx", "logprobs")
    return rollouts(start) or by_keys(*OPEN_INSTRUCT_METADATA)(start)


def _describes_a_run(path: str) -> bool:
    return by_keys(*OPEN_INSTRUCT_METADATA)(FileStart(path)) is not None


def _refuse_description(path: str) -> tuple[str, ...]:
    if _describes_a_run(path):
        raise NoRollouts("it describes a run of open-instruct, and holds no rollouts.", "Name *_rollouts_*.jsonl.")
    return ()


STABLE = "STABLE"
"""The file that prime-rl writes beside those of a step when the step is complete."""


def _check_stable(path: str) -> tuple[str, ...]:
    from rlcorr_cli.files import filesystem
    from rlcorr_cli.places import scheme

    folder = os.path.dirname(path if scheme(path) else os.path.abspath(path))
    if filesystem(path).is_there(os.path.join(folder, STABLE)):
        return ()
    if re.fullmatch(r"step_\d+", os.path.basename(folder)):
        raise UnfinishedStep(
            f"its step is still being written: there is no {STABLE} beside it.",
            f"Wait for prime-rl to write {STABLE}, or name the steps that are complete.",
        )
    return (f"No {STABLE} is beside it, by which prime-rl says that a step is complete.",)


def _of_schema_1(row: dict[str, Any], number: int) -> Iterable[Mapping[str, Any]]:
    if row.get("schema_version") != 1:
        raise DataError("its schema_version is not 1, the only one that is read.", "Look for a newer rlcorr.")
    return (row,)


EXPORT_HINT = (
    "prime-rl keeps the trainer's log-probs in RUN/monitors/, unless the run has --no-monitors.file: name that. Before "
    "September 2026 it wrote them in token_exports/ only, with trainer.enable_token_export = true."
)


def _traces(start: FileStart) -> str | None:
    """By its keys; the stream of a monitor, which has them, too, is read with what lies beside it."""
    if monitor_file(start.path) is not None:
        return None
    return by_keys("id", "env", "task", "traces")(start) if isinstance(start.row.get("traces"), list) else None


def _each_episode_once(paths: Sequence[str]) -> list[tuple[str, ...]]:
    """Leave out `all` where the step has `effective`, and evaluation where there is training."""

    def folders(path: str) -> list[str]:
        return re.split(r"[\\/]", os.path.dirname(path))

    trained = [path for path in paths if folders(path)[-2:-1] != ["eval"]] or paths
    present = {os.path.dirname(path) for path in trained}

    def is_again(path: str) -> bool:
        beside = os.path.join(os.path.dirname(os.path.dirname(path)), "effective")
        return folders(path)[-1:] == ["all"] and beside in present

    return each_alone([path for path in trained if not is_again(path)])


def _sglang(start: FileStart) -> str | None:
    """By its key; of LMDeploy's responses, which have it, too, the log-probs may lie beside it."""
    meta_info = start.row.get("meta_info")
    if not isinstance(meta_info, dict) or "output_token_logprobs" not in meta_info:
        return None
    is_elsewhere = meta_info["output_token_logprobs"] is None and log_probs_in(start.row)
    return None if is_elsewhere else "key meta_info.output_token_logprobs"


ENGINE_HINT = (
    "An engine gives its own policy's log-probs only. Score the same tokens with the trained policy, and pair the two: "
    "⟦convert(DUMP)⟧ ⟦join SCORED⟧ ⟦on {on}⟧ ⟦output dump.parquet⟧."
)

JSON_LAYOUTS = (
    Layout(
        name="nemo-gym",
        framework="NeMo-Gym",
        title="NeMo-Gym's rollouts",
        recognise=_nemo_gym,
        open=JsonLines(
            columns={
                "rollout_log_probs": From("floats", "generation_log_probs"),
                "response_mask": From("mask", "mask"),
                "token_ids": From("integers", "generation_token_ids"),
                "reward": From("number", "reward"),
                "group_id": From("text", "_ng_task_index"),
                "sample_id": From("text", "_ng_rollout_index"),
                "source": From("text", "agent_ref.name"),
            },
            parts=later("json_rows.nemo_gym_conversation"),
            surveyed="conversation",
            notes=(
                "A row holds all calls of a conversation; tokens between them have mask 0.",
                "Where a call's prompt is not what went before it, its tokens follow the call before without any "
                "between.",
            ),
            notes_with={"Rows with mask_sample have mask 0.": ("mask_sample", b"")},
            missing_policy_hint="NeMo-Gym collects rollouts and trains nothing. NeMo-RL, which trains on them, writes "
            "train_data_step{N}.jsonl with both policies unless env.should_log_nemo_gym_responses is true.",
        ),
    ),
    # Both policies over the padded prompt and response: what lies before a row's first token of token_loss_mask is
    # the prompt, and after its last padding. With dynamic sampling `filtered_rewards` is the row's reward, and
    # `rewards` another list. prev_logprobs of a whole file at 0.0 (force_on_policy_ratio) are no policy.
    Layout(
        name="nemo-rl",
        framework="NeMo-RL",
        title="NeMo-RL's train_data_step{N}.jsonl",
        recognise=by_keys("generation_logprobs", "prev_logprobs", "token_loss_mask"),
        trained=True,
        open=JsonLines(
            columns={
                "response_mask": From("mask", "token_loss_mask"),
                "token_ids": From("integers", "token_ids"),
                "rollout_log_probs": From("floats", "generation_logprobs"),
                "old_log_probs": From("floats", "prev_logprobs"),
                "advantages": From("floats", "advantages", optional=True),
                "reward": From("number", "filtered_rewards|rewards"),
                "sample_id": From("text", "idx"),
                "source": From("text", "agent_ref"),
            },
            # A nested list up to a value other than 0.0: a digit from 1 to 9, NaN or Infinity.
            only_with={"old_log_probs": ("prev_logprobs", rb"\[\s?\[[^\]]*[1-9NI]")},
            from_path={"step": r"train_data_step(\d{1,18})"},
            parts=later("json_rows.nemo_rl_row"),
            span=True,
            zeroed_by="sample_loss_mask",
            notes=("Rows whose sample_loss_mask is 0 have mask 0; reward is filtered_rewards, else rewards.",),
            missing_policy_hint="prev_logprobs is 0.0 everywhere: the run left them out. Train with "
            "loss_fn.force_on_policy_ratio=false to have them written.",
        ),
    ),
    Layout(
        name="open-instruct",
        framework="open-instruct",
        title="open-instruct's rollouts",
        recognise=_open_instruct,
        files_of_a_step=lambda paths: each_alone([path for path in paths if not _describes_a_run(path)] or paths),
        left_out="it describes the run.",
        open=JsonLines(
            columns={
                "token_ids": From("integers", "response_tokens"),
                "rollout_log_probs": From("floats", "logprobs"),
                "advantages": From("number", "advantage"),
                "reward": From("number", "reward"),
                "step": From("whole", "step"),
                "group_id": From("joined", "{step}/{prompt_idx}"),
                "sample_id": From("text", "sample_idx"),
                "source": From("text", "dataset"),
            },
            check=_refuse_description,
            notes=(
                "The file has no mask: tokens of tools, with log-probs of exactly 0.0, count as the policy's own.",
                "A response without a token is one end token, whose log-prob is NaN.",
            ),
            missing_policy_hint="open-instruct saves the engine's log-probs only, and has no option for the trainer's. "
            "Score the same tokens with the trained policy, and pair the two: ⟦convert(DUMP)⟧ ⟦join SCORED⟧ "
            "⟦on step,sample_id⟧ ⟦output dump.parquet⟧.",
        ),
    ),
    # token_exports/step_{N}/rank_{R}.jsonl, a packed sequence a line. Before the first trained token lies the prompt,
    # of which the first token holds -log(vocabulary), or a value over the border to the sequence packed before. null
    # is what is not finite.
    Layout(
        name="prime-rl",
        framework="prime-rl",
        title="prime-rl's token export",
        recognise=by_keys("schema_version", "inference_logprobs", "trainer_logprobs"),
        trained=True,
        open=JsonLines(
            columns={
                "token_ids": From("integers", "token_ids"),
                "response_mask": From("mask", "loss_mask"),
                "advantages": From("floats", "advantages"),
                "rollout_log_probs": From("floats", "inference_logprobs"),
                "current_log_probs": From("floats", "trainer_logprobs"),
                "entropies": From("floats", "entropies|entropy", optional=True),
                "is_masked": From("floats", "is_masked", optional=True),
                "step": From("whole", "step"),
                "sample_id": From("joined", "{rank}-{export_sequence_idx}"),
                "source": From("text", "env_name"),
                "worker": From("whole", "rank"),
            },
            parts=_of_schema_1,
            span=True,
            check=_check_stable,
            notes=(
                "Rows run from the first to the last trained token: values before it are not log-probs of samples.",
                "The training side is the current policy, of the training forward; prime-rl keeps no other.",
            ),
        ),
    ),
    # rollouts/step_{N}/{train,eval}/{all,effective}/traces.jsonl, an episode a line. `effective` has the episodes
    # that were trained on, with advantages; `all` also those that were not.
    Layout(
        name="prime-rl-traces",
        framework="prime-rl",
        title="prime-rl's traces.jsonl",
        recognise=_traces,
        files_of_a_step=_each_episode_once,
        left_out="`effective` has the episodes of `all` that were trained on, and evaluation is not trained on.",
        open=JsonLines(
            columns={
                "response_mask": From("mask", "mask"),
                "token_ids": From("integers", "token_ids"),
                "rollout_log_probs": From("floats", "logprobs"),
                "advantages": From("floats", "advantages", optional=True),
                "ref_log_probs": From("floats", "reference_logprobs", optional=True),
                "reward": From("number", "reward"),
                "step": From("whole", "run.work.step"),
                "group_id": From("text", "group.id"),
                "sample_id": From("text", "trace.id"),
                "policy_version": From("version", "run.work.policy.start"),
                "policy_version_end": From("version", "run.work.policy.end"),
                "source": From("text", "env.name"),
                "episode_id": From("text", "id"),
                "branch": From("whole", "branch"),
            },
            only_with={"advantages": ("advantages", rb"\[[^\]]"), "ref_log_probs": ("reference_logprobs", rb"\[[^\]]")},
            parts=later("json_rows.prime_rl_branches"),
            span=True,
            notes=(
                "A row is a branch of an episode's messages, from its first to its last sampled token; what branches "
                "share is in the first of them only, as in training.",
                "Episodes without a sampled token give no row.",
            ),
            missing_policy_hint=EXPORT_HINT,
        ),
    ),
    # The engine's own answers, one a line: [log-prob, token id, text or null] of each token.
    # meta_info.weight_versions says which weights sampled which tokens: [{version, start, end}]; without it the
    # response has one weight_version. input_token_logprobs are the prompt's, scored.
    Layout(
        name="sglang",
        framework="SGLang",
        title="SGLang's /generate responses",
        recognise=_sglang,
        open=JsonLines(
            columns={
                "rollout_log_probs": From("floats", "log-prob"),
                "token_ids": From("integers", "token id"),
                "group_id": From("text", "request"),
                "sample_id": From("text", "id"),
                "policy_version": From("whole", "first_version"),
                "policy_version_end": From("whole", "last_version"),
                "prompt_log_probs": From("floats", "prompt_log_probs", optional=True),
                "prompt_token_ids": From("integers", "prompt_token_ids", optional=True),
                "policy_versions": From("integers", "versions", optional=True),
                "cached_tokens": From("whole", "cached_tokens", optional=True),
                "total_prompt_tokens": From("whole", "prompt_tokens", optional=True),
                **{name: From("number", name, optional=True) for name in ("spec_accept_rate", "spec_accept_length")},
            },
            only_with=dict.fromkeys(("policy_version", "policy_version_end"), ("weight_version", b'"')),
            parts=later("json_rows.sglang_response"),
            surveyed="response",
            stream=SGLANG,
            notes=("A row is a response; group_id is its place in the file.",),
            missing_policy_hint=ENGINE_HINT.format(on="group_id"),
        ),
    ),
)
