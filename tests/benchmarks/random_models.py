"""What `diagnose` says of the noise of engines: `python tests/benchmarks/random_models.py [--dense 60] [--moe 40]`.

Each dump is of a new transformer with random weights: 2 to 12 layers, 64 to 192 wide, a vocabulary of 64 to 1,500,
dense or with 4 or 8 experts (top-1 or top-2), from flat to sure of its tokens.  96 rows of 48 tokens are sampled token
by token in bf16 with a KV cache, and scored by one pass in bf16 or fp32 with the same weights.  A dense model leaves
noise alone; a router in bf16 flips now and then.  Printed: the verdicts, and how many times wider the spread of
log-odds is than noise of its shape makes it (`d_over_noise`).
"""

import argparse
from collections import Counter
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlcorr_cli import diagnose

ROWS, LENGTH, PROMPT, SAMPLES, HEADS = 96, 48, 8, 4, 4


@dataclass(frozen=True)
class Layer:
    """The weights of a layer; `up` and `down` are lists of experts, one of a dense model."""

    attention: Tensor
    output: Tensor
    up: list[Tensor]
    down: list[Tensor]
    router: Tensor

    def to(self, kind: torch.dtype) -> "Layer":
        """In another type of numbers."""
        up, down = ([weight.to(kind) for weight in weights] for weights in (self.up, self.down))
        return Layer(self.attention.to(kind), self.output.to(kind), up, down, self.router.to(kind))


@dataclass(frozen=True)
class Model:
    """A random transformer; sharp: what its logits are multiplied by."""

    embedding: Tensor
    head: Tensor
    bias: Tensor
    layers: list[Layer]
    top: int
    sharp: float

    @classmethod
    def drawn(cls, draw: np.random.Generator, experts: int) -> "Model":
        """A new one, in bf16."""
        seed = torch.Generator().manual_seed(int(draw.integers(1 << 31)))
        width, n_layers, vocabulary = (int(draw.choice(sizes)) for sizes in ((64, 128, 192), (2, 4, 8, 12), VOCABULARY))

        def weight(*shape: int, scale: float = 1.0) -> Tensor:
            return (torch.randn(*shape, generator=seed) * scale).to(torch.bfloat16)

        narrow, wide = width**-0.5, (4 * width) ** -0.5
        layers = [
            Layer(
                attention=weight(3 * width, width, scale=narrow),
                output=weight(width, width, scale=0.7 * narrow),
                up=[weight(4 * width, width, scale=narrow) for _ in range(experts)],
                down=[weight(width, 4 * width, scale=wide) for _ in range(experts)],
                router=weight(experts, width, scale=narrow),
            )
            for _ in range(n_layers)
        ]
        common = 2.0 * (torch.arange(vocabulary) < vocabulary // 20)
        bias = torch.randn(vocabulary, generator=seed) + common
        head = weight(vocabulary, width, scale=narrow)
        top, sharp = int(draw.choice((1, 2))), float(draw.choice((1.0, 2.5, 5.0)))
        return cls(weight(vocabulary, width), head, bias, layers, min(top, experts), sharp)

    def to(self, kind: torch.dtype) -> "Model":
        """In another type of numbers."""
        layers = [layer.to(kind) for layer in self.layers]
        return Model(self.embedding.to(kind), self.head.to(kind), self.bias, layers, self.top, self.sharp)

    def log_probs(self, hidden: Tensor) -> Tensor:
        """Of the next token."""
        return F.log_softmax(F.linear(_normed(hidden), self.head).float() * self.sharp + self.bias, -1)

    def passed(self, ids: Tensor, first: int, cache: list[tuple[Tensor, Tensor]] | None) -> Tensor:
        """The hidden states of tokens from place `first` on; their keys and values go into the cache."""
        places = torch.arange(first, first + ids.shape[1])[:, None]
        width = self.embedding.shape[1]
        angles = places * torch.exp(-6 * torch.arange(width) / width)
        hidden = self.embedding[ids] + torch.sin(angles).to(self.embedding.dtype)
        for at, layer in enumerate(self.layers):
            hidden = hidden + self._attended(layer, _normed(hidden), at, cache)
            hidden = hidden + self._mixed(layer, _normed(hidden))
        return hidden

    def _attended(self, layer: Layer, x: Tensor, at: int, cache: list[tuple[Tensor, Tensor]] | None) -> Tensor:
        rows, length, width = x.shape
        parts = F.linear(x, layer.attention).split(width, -1)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        if cache is not None and at < len(cache) and length == 1:
            k, v = (torch.cat(pair, 2) for pair in zip(cache[at], (k, v), strict=True))
        if cache is not None:
            cache[at : at + 1] = [(k, v)]
        if length > 1:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mixed = F.softmax((q @ k.transpose(-1, -2)).float() / sqrt(width // HEADS), -1).to(q.dtype) @ v
        return F.linear(mixed.transpose(1, 2).reshape(rows, length, width), layer.output)

    def _mixed(self, layer: Layer, x: Tensor) -> Tensor:
        if len(layer.up) == 1:
            return F.linear(F.silu(F.linear(x, layer.up[0])), layer.down[0])
        gates, chosen = F.softmax(F.linear(x, layer.router).float(), -1).topk(self.top, -1)
        mixed = torch.zeros_like(x)
        for expert, (up, down) in enumerate(zip(layer.up, layer.down, strict=True)):
            gate = (gates * (chosen == expert)).sum(-1, keepdim=True).to(x.dtype)
            mixed = mixed + gate * F.linear(F.silu(F.linear(x, up)), down)
        return mixed


VOCABULARY = (64, 400, 1500)


def _normed(x: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


@torch.no_grad()
def dump(draw: np.random.Generator, experts: int) -> dict[str, Any]:
    """A dump of a new model, as columns."""
    model = Model.drawn(draw, experts)
    scoring = model.to(torch.bfloat16 if draw.random() < 0.5 else torch.float32)
    seed = torch.Generator().manual_seed(int(draw.integers(1 << 31)))
    prompts = torch.randint(0, len(model.bias), (ROWS // SAMPLES, PROMPT), generator=seed)
    prompts = prompts.repeat_interleave(SAMPLES, 0)
    cache: list[tuple[Tensor, Tensor]] = []
    hidden = model.passed(prompts, 0, cache)
    sampled, drawn = list[Tensor](), list[Tensor]()
    for place in range(LENGTH):
        log_probs = model.log_probs(hidden[:, -1])
        token = torch.multinomial(log_probs.exp(), 1, generator=seed)
        sampled.append(log_probs.gather(1, token))
        drawn.append(token)
        hidden = model.passed(token, PROMPT + place, cache)
    tokens = torch.cat(drawn, 1)
    scored = scoring.log_probs(scoring.passed(torch.cat([prompts, tokens], 1), 0, None)[:, PROMPT - 1 : -1])
    return {
        "group_id": [f"g{row // SAMPLES}" for row in range(ROWS)],
        "token_ids": tokens.tolist(),
        "rollout_log_probs": torch.cat(sampled, 1).tolist(),
        "old_log_probs": scored.gather(2, tokens[:, :, None])[:, :, 0].tolist(),
    }


def main() -> None:
    """Print the verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dense", type=int, default=60)
    parser.add_argument("--moe", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = np.random.default_rng(options.seed)
    for kind, count in (("dense", options.dense), ("mixture of experts", options.moe)):
        verdicts, wider = Counter[str](), list[float]()
        for _ in range(count):
            found = diagnose(dump(draw, 1 if kind == "dense" else int(draw.choice((4, 8))))).whole.diagnosis
            verdicts[found.verdict] += 1
            wider.append(found.features["d_over_noise"] or 1.0)
        spread = "" if not wider else f"  d_over_noise {min(wider):.2f} to {max(wider):.2f}"
        print(f"{kind:20} {dict(verdicts.most_common())}{spread}", flush=True)


if __name__ == "__main__":
    main()
