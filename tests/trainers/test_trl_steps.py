"""Steps of a released TRL on a CPU: a tiny random model whose rollouts are sampled in bf16, recorded as it trains."""

import math
from pathlib import Path
from typing import Any

import pytest

from rlcorr_cli import Recorder, analyze, inspect

trl = pytest.importorskip("trl", reason="TRL is not installed: pip install '.[trainers]'")
pytestmark = [pytest.mark.full, pytest.mark.filterwarnings("ignore")]
CHARACTERS = [chr(code) for code in range(32, 127)]
WORDS = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *CHARACTERS])}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BATCHES = {"per_device_train_batch_size": 8, "num_generations": 4, "num_iterations": 2, "max_steps": 6}
SETTINGS: dict[str, Any] = {"max_completion_length": 10, "use_cpu": True, "bf16": False, "save_strategy": "no"}
"""Each batch is used twice, so that TRL computes old_per_token_logps: six steps of the optimizer, three batches."""


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    by_character = Tokenizer(models.WordLevel(WORDS, unk_token="<unk>"))
    by_character.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=by_character, padding_side="left", **special)


def trained(folder: Path, trainer_class: Any, **settings: Any) -> Any:
    """A trainer that has trained, with rollouts of its model's weights in bf16."""
    import torch
    from datasets import Dataset
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    words = tokenizer()
    model = LlamaForCausalLM(
        LlamaConfig(vocab_size=len(WORDS), pad_token_id=0, eos_token_id=1, initializer_range=0.3, **SIZES)
    )

    @torch.no_grad()
    def sampled_in_bf16(prompts: list[str], trainer: Any) -> dict[str, Any]:
        engine = LlamaForCausalLM(model.config)
        engine.load_state_dict(model.state_dict())
        engine.to(torch.bfloat16).eval()
        answer: dict[str, Any] = {"prompt_ids": [], "completion_ids": [], "logprobs": []}
        for prompt in prompts:
            prompt_ids = words(prompt)["input_ids"]
            completion, log_probs = [], []
            while len(completion) < SETTINGS["max_completion_length"] and completion[-1:] != [1]:
                logits = engine(torch.tensor([prompt_ids + completion])).logits[0, -1].float()
                policy = torch.log_softmax(logits, -1)
                completion.append(int(torch.multinomial(policy.exp(), 1)))
                log_probs.append(float(policy[completion[-1]]))
            for name, value in zip(answer, (prompt_ids, completion, log_probs), strict=True):
                answer[name].append(value)
        return answer

    trainer = trainer_class(
        model=model,
        reward_funcs=lambda completions, **rest: [float(text.count("1")) for text in completions],
        args=trl.GRPOConfig(output_dir=str(folder), **SETTINGS | BATCHES | settings, report_to="none"),
        train_dataset=Dataset.from_list([{"prompt": f"{i}+{i}="} for i in range(16)]),
        processing_class=words,
        rollout_func=sampled_in_bf16,
    )
    trainer.train()
    return trainer


def slow_k3(batches: list[dict[str, Any]], trained_policy: str) -> tuple[int, float]:
    """How many tokens count, and the mean of rho - 1 - log rho over them, one after the other."""
    terms = []
    for batch in batches:
        lists = [batch[key].tolist() for key in ("completion_mask", "sampling_per_token_logps", trained_policy)]
        for row in zip(*lists, strict=True):
            for valid, rollout, train in zip(*row, strict=True):
                if valid:
                    terms.append(math.expm1(train - rollout) - (train - rollout))
    return len(terms), math.fsum(terms) / len(terms)


def test_three_recorded_batches_of_trl_give_what_the_trainer_held(tmp_path: Path) -> None:
    recorder, kept = Recorder(str(tmp_path / "dump"), strict=True), []

    class Recorded(trl.GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            recorder.write(batch, step=self.state.global_step)
            kept.append({key: value.clone() for key, value in batch.items() if hasattr(value, "clone")})
            return batch

    trained(tmp_path / "run", Recorded)
    recorder.close()
    n_tokens, k3 = slow_k3(kept, "old_per_token_logps")
    assert len(kept) == 3
    assert len(list((tmp_path / "dump").glob("*.parquet"))) == 3
    read = inspect(str(tmp_path / "dump"))
    assert read.bad_rows == 0
    assert {"rollout_log_probs", "old_log_probs"} <= set(read.columns)
    report = analyze(str(tmp_path / "dump"), group_by="step")
    assert report.whole.counts["tokens"] == n_tokens
    assert report.whole.values["k3_kl"] == pytest.approx(k3, rel=1e-6)
    assert [group.key["step"] for group in report.groups] == [0, 2, 4]
    assert k3 > 1e-8  # bf16 differs


def test_the_loss_of_trl_is_recorded_where_a_batch_is_used_once(tmp_path: Path) -> None:
    recorder, kept = Recorder(str(tmp_path / "dump"), strict=True), []

    class Recorded(trl.GRPOTrainer):
        def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
            self.scored = super()._get_per_token_logps_and_entropies(*args, **kwargs)
            return self.scored

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
            loss = super()._compute_loss(model, inputs)
            batch = {**inputs, "per_token_logps": self.scored[0]}
            recorder.write(batch, step=self.state.global_step)
            kept.append({key: value.detach().clone() for key, value in batch.items() if hasattr(value, "clone")})
            return loss

    trained(tmp_path / "run", Recorded, num_iterations=1, max_steps=3)
    recorder.close()
    n_tokens, k3 = slow_k3(kept, "per_token_logps")
    assert "old_per_token_logps" not in kept[0]
    report = analyze(str(tmp_path / "dump"))
    assert report.whole.counts["tokens"] == n_tokens
    assert report.whole.values["k3_kl"] == pytest.approx(k3, rel=1e-6)
