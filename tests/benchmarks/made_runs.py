"""Runs of many steps with a known cause, on new models: `python tests/benchmarks/made_runs.py FOLDER [--seed N]`.

Six models with random weights are drawn: a GRU with tied embeddings, a transformer of two layers with ALiBi, and one of
three layers without positions whose layers mix the best two of six experts; of each, one that is sure of most tokens
and one that is open.  14 real policy-gradient steps of a made reward (the share of tokens of a set) move the weights.

Each dump is 8 to 14 steps of 10 to 16 prompts x 4 samples.  A step is sampled token by token with a cache by the
weights and settings that the fault says, and scored by one pass over prompt and response with other kernels.  `PLAN`
says what is made; faults of weights, sampler, prompt and dropout are in the passes, and only shifts, slips,
mispairings, grids and zeros are made afterwards.  Written: FOLDER/NAME.parquet and FOLDER/_truth.json, which `runs.py`
reads.

A truth's `share` is 1 - Q0 / Q, with Q the sum of squared log-ratios, and Q0 that of the same tokens without the fault;
`weak` is a share below .3.  Below .5, `heavy_tail` (a router's flips make most of the gap) is accepted of a mixture of
experts, beside the clean reading that `runs.py` accepts.  `sha256` is that of the dump's file.
"""

import argparse
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor

Weights = dict[str, Tensor]
HEADS, STEPS, SAMPLES, LONGEST, SUFFIX = 4, 14, 4, 40, 3
MASKED = -30000.0
BF16, FP32 = torch.bfloat16, torch.float32
SOURCES = ("chat", "sums", "tables")


@dataclass(frozen=True)
class Design:
    """What a model is: sure: the share of positions at which logits are wide; change: the rms change by an update."""

    family: str
    vocabulary: int
    width: int
    layers: int
    sure: float
    wide: float
    change: float
    experts: int = 0


DESIGNS = {
    "gru_sure": Design("gru", 600, 128, 2, 0.75, 20.0, 0.2),
    "gru_open": Design("gru", 300, 96, 1, 0.1, 9.0, 0.08),
    "alibi_sure": Design("attention", 1500, 96, 2, 0.8, 22.0, 0.15),
    "alibi_open": Design("attention", 2000, 64, 2, 0.05, 10.0, 0.06),
    "moe_sure": Design("attention", 400, 96, 3, 0.75, 20.0, 0.3, experts=6),
    "moe_open": Design("attention", 1000, 96, 3, 0.1, 8.0, 0.2, experts=6),
}


def drawn_weights(design: Design, seed: int) -> Weights:
    """Random weights in fp32."""
    random = torch.Generator().manual_seed(seed)
    width = design.width

    def matrix(rows: int, columns: int, scale: float = 1.0) -> Tensor:
        return torch.randn(rows, columns, generator=random) * scale / sqrt(columns)

    weights = {
        "embedding": torch.randn(design.vocabulary, width, generator=random),
        "gate": torch.randn(width, generator=random) / sqrt(width),
        "bias": -0.4 * torch.log(1.0 + torch.randperm(design.vocabulary, generator=random)),
        "sharp": torch.ones(()),
    }
    for layer in range(design.layers):
        if design.family == "gru":
            weights |= {f"x{layer}": matrix(3 * width, width, 1.5), f"h{layer}": matrix(3 * width, width, 1.5)}
            continue
        weights |= {f"qkv{layer}": matrix(3 * width, width, 1.3), f"out{layer}": matrix(width, width, 0.8)}
        small = 0.5 if design.experts else 1.0
        for expert in range(max(design.experts, 1)):
            weights |= {
                f"up{layer}.{expert}": matrix(3 * width, width),
                f"down{layer}.{expert}": matrix(width, 3 * width, small),
            }
        if design.experts:
            weights[f"router{layer}"] = matrix(design.experts, width, 4.0)
    if design.family != "gru":
        weights["head"] = matrix(design.vocabulary, width) * sqrt(width)
    return weights


def normed(x: Tensor) -> Tensor:
    """x over its rms, along the last axis."""
    exact = x.float()
    return (exact * torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def logits_of(design: Design, weights: Weights, hidden: Tensor) -> Tensor:
    """Logits of the next token, fp32: wide where the gate says so, about 2 in rms elsewhere."""
    x = normed(hidden)
    head = weights["embedding"] if design.family == "gru" else weights["head"]
    offset = torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(design.sure))
    gate = torch.sigmoid(5.0 * (x.float() @ weights["gate"].float() + offset))
    scale = (2.0 + design.wide * gate) * weights["sharp"].float()
    return F.linear(x, head / sqrt(design.width)).float() * scale[..., None] + weights["bias"].float()


def feed(design: Design, weights: Weights, x: Tensor, layer: int) -> Tensor:
    """The feed-forward part of a layer: one network, or the best two experts."""
    if not design.experts:
        return F.linear(F.gelu(F.linear(x, weights[f"up{layer}.0"])), weights[f"down{layer}.0"])
    gates, chosen = F.softmax(F.linear(x.float(), weights[f"router{layer}"].float()), -1).topk(2, -1)
    gates = gates / gates.sum(-1, keepdim=True)
    mixed = torch.zeros_like(x)
    for expert in range(design.experts):
        gate = (gates * (chosen == expert)).sum(-1, keepdim=True).to(x.dtype)
        inner = F.gelu(F.linear(x, weights[f"up{layer}.{expert}"]))
        mixed = mixed + gate * F.linear(inner, weights[f"down{layer}.{expert}"])
    return mixed


def attention_bias(design: Design, kept: Tensor, queries: int) -> Tensor:
    """What is added to scores, [rows, heads, queries, keys]: ALiBi's slopes; MASKED for padding and the future."""
    keys = kept.shape[1]
    distance = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)[None]
    slopes = 2.0 ** -(2.0 * torch.arange(1, HEADS + 1)) if not design.experts else torch.zeros(HEADS)
    bias = -slopes[:, None, None] * distance.clamp(min=0)
    hidden = (distance < 0)[None] | ~kept[:, None, :]
    return bias[None] + MASKED * hidden[:, None].float()


def cached_pass(design: Design, weights: Weights, ids: Tensor, kept: Tensor, state: list[Any]) -> Tensor:
    """The engine's pass: hidden states of ids [rows, new]; kept: [rows, old and new]; `state` is carried on."""
    x = weights["embedding"][ids]
    rows, new, width = x.shape
    if design.family == "gru":
        state[:] = state or [torch.zeros(rows, width, dtype=x.dtype)] * design.layers
        outputs = []
        for place in range(new):
            inner, real = x[:, place], kept[:, kept.shape[1] - new + place, None]
            for layer in range(design.layers):
                of_x, of_h = F.linear(inner, weights[f"x{layer}"]), F.linear(state[layer], weights[f"h{layer}"])
                (xr, xz, xn), (hr, hz, hn) = of_x.chunk(3, -1), of_h.chunk(3, -1)
                update, candidate = torch.sigmoid(xz + hz), torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
                moved = (1 - update) * candidate + update * state[layer]
                state[layer] = torch.where(real, moved, state[layer])
                inner = state[layer] + inner if layer < design.layers - 1 else state[layer]
            outputs.append(inner)
        return torch.stack(outputs, 1)
    bias = attention_bias(design, kept, new)
    for layer in range(design.layers):
        parts = F.linear(normed(x), weights[f"qkv{layer}"]).split(width, -1)
        q, k, v = (part.view(rows, new, HEADS, -1).transpose(1, 2) for part in parts)
        if len(state) > layer:
            k, v = torch.cat([state[layer][0], k], 2), torch.cat([state[layer][1], v], 2)
            state[layer] = (k, v)
        else:
            state.append((k, v))
        shares = F.softmax((q @ k.transpose(-1, -2)).float() / sqrt(width // HEADS) + bias, -1).to(x.dtype)
        x = x + F.linear((shares @ v).transpose(1, 2).reshape(rows, new, width), weights[f"out{layer}"])
        x = x + feed(design, weights, normed(x), layer)
    return x


def full_pass(design: Design, weights: Weights, ids: Tensor, kept: Tensor, dropout: float = 0.0) -> Tensor:
    """The trainer's pass over whole sequences, in another order of operations than the engine's."""
    x = F.dropout(weights["embedding"][ids], dropout)
    rows, length, width = x.shape
    if design.family == "gru":
        for layer in range(design.layers):
            of_x = F.linear(x.reshape(rows * length, width), weights[f"x{layer}"]).view(rows, length, -1)
            h, outputs = torch.zeros(rows, width, dtype=x.dtype), []
            both, last = weights[f"h{layer}"][: 2 * width], weights[f"h{layer}"][2 * width :]
            for place in range(length):
                reset, update = torch.sigmoid(torch.addmm(of_x[:, place, : 2 * width], h, both.T)).chunk(2, -1)
                candidate = torch.tanh(of_x[:, place, 2 * width :] + reset * (h @ last.T))
                h = torch.where(kept[:, place, None], torch.lerp(candidate, h, update), h)
                outputs.append(h)
            mixed = F.dropout(torch.stack(outputs, 1), dropout)
            x = x + mixed if layer < design.layers - 1 else mixed
        return x
    bias = attention_bias(design, kept, length).to(x.dtype)
    for layer in range(design.layers):
        parts = F.linear(normed(x), weights[f"qkv{layer}"]).split(width, -1)
        q, k, v = (part.view(rows, length, HEADS, -1).transpose(1, 2) for part in parts)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).reshape(rows, length, width)
        x = x + F.dropout(F.linear(mixed, weights[f"out{layer}"]), dropout)
        x = x + F.dropout(feed(design, weights, normed(x), layer), dropout)
    return x


def padded(sequences: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Sequences padded on the left, and which places are real."""
    longest = max(map(len, sequences))
    ids = torch.tensor([[0] * (longest - len(row)) + row for row in sequences])
    kept = torch.arange(longest)[None] >= torch.tensor([longest - len(row) for row in sequences])[:, None]
    return ids, kept


@dataclass(frozen=True)
class Settings:
    """How the engine samples a row; behind: updates that its weights lack; adapter: size of a low-rank change."""

    behind: int = 0
    temperature: float = 1.0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    bits: int = 0
    adapter: float = 0.0


def processed(logits: Tensor, seen: Tensor, settings: Settings) -> Tensor:
    """Log-probs of the distribution that is sampled, of raw logits [rows, vocabulary]."""
    if settings.penalty != 1.0:
        pushed = torch.where(logits > 0, logits / settings.penalty, logits * settings.penalty)
        logits = torch.where(seen, pushed, logits)
    log_probs = F.log_softmax(logits / settings.temperature, -1)
    if settings.top_p < 1.0:
        ordered, order = log_probs.exp().sort(-1, descending=True)
        cut = ordered.cumsum(-1) - ordered >= settings.top_p
        log_probs = log_probs.masked_fill(torch.zeros_like(cut).scatter(-1, order, cut), -torch.inf)
    if settings.min_p > 0.0:
        least = log_probs.amax(-1, keepdim=True) + np.log(settings.min_p)
        log_probs = log_probs.masked_fill(log_probs < least, -torch.inf)
    return F.log_softmax(log_probs, -1)


def engine_weights(weights: Weights, settings: Settings, kind: torch.dtype) -> Weights:
    """The weights that the engine runs: with an adapter, or rounded to whole numbers by row, in its type."""
    random = torch.Generator().manual_seed(11)
    changed = {}
    for name, weight in weights.items():
        if weight.ndim == 2 and settings.adapter:
            low = torch.randn(weight.shape[0], 4, generator=random) @ torch.randn(4, weight.shape[1], generator=random)
            weight = weight + settings.adapter * weight.std() * low / 2.0
        if weight.ndim == 2 and settings.bits and name != "embedding":
            unit = weight.abs().amax(-1, keepdim=True) / (2 ** (settings.bits - 1) - 1)
            weight = (weight / unit).round() * unit
        changed[name] = weight.to(kind)
    return changed


@torch.no_grad()
def sampled(
    design: Design,
    weights: Weights,
    prompts: list[list[int]],
    settings: Settings,
    random: torch.Generator,
    length: int,
    forced: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Tokens and their log-probs [rows, length], token by token; of `forced` tokens, their log-probs."""
    ids, kept = padded(prompts)
    seen = torch.zeros(len(ids), design.vocabulary, dtype=torch.bool).scatter(1, ids, True)
    state: list[Any] = []
    tokens, log_probs = [], []
    hidden = cached_pass(design, weights, ids, kept, state)
    for place in range(length):
        law = processed(logits_of(design, weights, hidden[:, -1]), seen, settings)
        token = torch.multinomial(law.exp(), 1, generator=random) if forced is None else forced[:, place, None]
        tokens.append(token)
        log_probs.append(law.gather(1, token))
        seen = seen.scatter(1, token, True)
        kept = torch.cat([kept, torch.ones_like(token, dtype=torch.bool)], 1)
        if place < length - 1:
            hidden = cached_pass(design, weights, token, kept, state)
    return torch.cat(tokens, 1), torch.cat(log_probs, 1)


def scored(
    design: Design, weights: Weights, prompts: list[list[int]], tokens: Tensor, labels: Tensor, dropout: float = 0.0
) -> Tensor:
    """The trainer's log-probs of the labels, [rows, length], where `tokens` are read."""
    ids, kept = padded([prompt + row for prompt, row in zip(prompts, tokens.tolist(), strict=True)])
    hidden = full_pass(design, weights, ids, kept, dropout)[:, -tokens.shape[1] - 1 : -1]
    return F.log_softmax(logits_of(design, weights, hidden), -1).gather(2, labels[:, :, None])[:, :, 0]


def advantages(rewards: np.ndarray) -> np.ndarray:
    """GRPO's, of rewards [prompts, samples]."""
    return (rewards - rewards.mean(1, keepdims=True)) / (rewards.std(1, keepdims=True) + 1e-6)


def rewarded(design: Design, tokens: Tensor) -> np.ndarray:
    """The share of tokens in the third quarter of the vocabulary, [rows]."""
    inside = (tokens >= design.vocabulary // 2) & (tokens < 3 * design.vocabulary // 4)
    return inside.float().mean(1).numpy()


def prompt_of(design: Design, draw: np.random.Generator, source: str, length: int) -> list[int]:
    """A prompt: words of the source's part of the vocabulary, then the mark at which the response begins."""
    part = (*SOURCES, "proofs").index(source)
    words = draw.integers(part * design.vocabulary // 5, (part + 2) * design.vocabulary // 5, length - SUFFIX)
    return [*words.tolist(), *range(10, 10 + SUFFIX)]


def trained(design: Design, seed: int) -> list[Weights]:
    """STEPS + 1 sets of weights, by Adam's direction of the policy gradient, `design.change` in rms by an update."""
    draw, random = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    history, size = [drawn_weights(design, seed)], 1e-4
    names = [name for name, weight in history[0].items() if weight.ndim == 2]
    first, second = ({name: torch.zeros_like(history[0][name]) for name in names} for _ in range(2))
    for step in range(1, STEPS + 1):
        old = history[-1]
        prompts = [
            prompt_of(design, draw, SOURCES[i % 3], int(draw.integers(6, 20)))
            for i in range(12)
            for _ in range(SAMPLES)
        ]
        tokens, _ = sampled(design, old, prompts, Settings(), random, 24)
        gains = torch.tensor(advantages(rewarded(design, tokens).reshape(-1, SAMPLES)).ravel()).float()
        leaves = {name: old[name].clone().requires_grad_() for name in names}
        before = scored(design, old | leaves, prompts, tokens, tokens)
        torch.autograd.backward(-(gains[:, None] * before).mean(), inputs=list(leaves.values()))
        direction = {}
        for name, leaf in leaves.items():
            slope = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            first[name] = 0.8 * first[name] + 0.2 * slope
            second[name] = 0.95 * second[name] + 0.05 * slope**2
            mean, square = first[name] / (1 - 0.8**step), second[name] / (1 - 0.95**step)
            direction[name] = mean / (square.sqrt() + 1e-8)
        for _ in range(3):
            moved = old | {name: old[name] - size * direction[name] for name in names}
            with torch.no_grad():
                change = (scored(design, moved, prompts, tokens, tokens) - before).square().mean().sqrt()
            size *= min(design.change / max(float(change), 1e-9), 10.0)
        history.append(old | {name: (old[name] - size * direction[name]).detach() for name in names})
    return history


@dataclass(frozen=True)
class Part:
    """A fault and its place: settings that differ, or an act of `ACTS`, on rows whose column has one of the levels."""

    settings: dict[str, Any] = field(default_factory=dict)
    act: str = ""
    column: str = ""
    levels: tuple[str, ...] = ()

    def holds(self, row: dict[str, Any]) -> bool:
        """Whether the fault is on a row."""
        return not self.column or str(row[self.column]) in self.levels


@dataclass(frozen=True)
class Plan:
    """A dump to be made."""

    kind: str
    accept: tuple[str, ...]
    parts: tuple[Part, ...] = ()
    column: str = ""
    levels: tuple[str, ...] = ()
    since: int | None = None
    until: int | None = None
    parameters: dict[str, float] = field(default_factory=dict)
    also: tuple[str, ...] = ()
    note: str = ""
    engine: torch.dtype = BF16
    trainer: torch.dtype = FP32
    lag: str = ""
    run: str = ""


@dataclass
class Rows:
    """Rows of a dump, and the log-probs of the same tokens without the fault."""

    columns: list[dict[str, Any]]
    rollout: list[np.ndarray]
    old: list[np.ndarray]
    sound_rollout: list[np.ndarray]
    sound_old: list[np.ndarray]


Act = Callable[[Rows, list[int], np.random.Generator], None]


def swap_pairs(rows: Rows, places: list[int], draw: np.random.Generator, share: float) -> None:
    """Swap old log-probs between rows of one step with the same length and other tokens."""
    wanted, used = max(round(share * len(places) / 2), 2), set[int]()
    for i in draw.permutation(places):
        if wanted == 0:
            return
        for j in draw.permutation(places):
            one, other = rows.columns[i], rows.columns[j]
            is_like = one["step"] == other["step"] and len(rows.old[i]) == len(rows.old[j]) > 5
            if is_like and not {i, j} & used and one["group_id"] != other["group_id"]:
                rows.old[i], rows.old[j] = rows.old[j], rows.old[i]
                used |= {i, j}
                wanted -= 1
                break


def slip(rows: Rows, places: list[int], draw: np.random.Generator) -> None:
    """Half of the rows: from a token on, the engine's log-prob is that of the token before."""
    for i in places:
        values, length = rows.rollout[i], len(rows.rollout[i])
        if length > 4 and draw.random() < 0.5:
            start = int(draw.integers(2, length - 2))
            rows.rollout[i] = np.r_[values[:start], values[start - 1 : -1]]


def shift(rows: Rows, places: list[int], draw: np.random.Generator) -> None:
    """Training's log-probs are those of the next token."""
    for i in places:
        rows.old[i] = np.r_[rows.old[i][1:], 0.0]


def round_to_grid(rows: Rows, places: list[int], draw: np.random.Generator) -> None:
    """The engine's log-probs with two decimals."""
    for i in places:
        rows.rollout[i] = rows.rollout[i].round(2)


def zero_rows(rows: Rows, places: list[int], draw: np.random.Generator) -> None:
    """2 % of the rows without the engine's log-probs."""
    for i in draw.choice(places, max(round(0.02 * len(places)), 3), replace=False):
        rows.rollout[i] = np.zeros_like(rows.rollout[i])


ACTS: dict[str, Act] = {
    "mispair_2": lambda rows, places, draw: swap_pairs(rows, places, draw, 0.02),
    "mispair_20": lambda rows, places, draw: swap_pairs(rows, places, draw, 0.2),
    "slip": slip,
    "shift": shift,
    "grid": round_to_grid,
    "zeros": zero_rows,
}
LONG_PROMPT, CUT_TO = 24, 14


def training_prompt(design: Design, row: dict[str, Any], acts: set[str]) -> list[int]:
    """The prompt that training reads."""
    prompt = row["prompt"]
    if "template" in acts:
        prompt = [*range(20, 24), *prompt]
    if "template_end" in acts:
        prompt = [*prompt[:-SUFFIX], *range(20, 20 + SUFFIX + 1)]
    if "cut_left" in acts and len(prompt) > LONG_PROMPT:
        prompt = prompt[-CUT_TO:]
    if "cut_right" in acts and len(prompt) > LONG_PROMPT:
        prompt = prompt[:CUT_TO]
    return prompt


def lag_of(pattern: str, step: int, draw: np.random.Generator) -> int:
    """How many updates the weights of a prompt are behind, told by policy_version."""
    if pattern == "waves":
        return (0, 0, 2, 2, 4)[step % 5]
    return int(draw.choice((0, 0, 3))) if pattern == "prompts" and step >= 3 else 0


def made(design: Design, history: list[Weights], plan: Plan, steps: int, seed: int) -> Rows:
    """The rows of a run."""
    draw, random = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    prompts, by_prompt = int(draw.integers(10, 17)), bool(draw.integers(2))
    rows = Rows([], [], [], [], [])
    stops = design.vocabulary // 40
    for step in range(steps):
        batch = list[dict[str, Any]]()
        for prompt in range(prompts):
            source = SOURCES[int(draw.integers(3))]
            if plan.run == "hard_late" and step >= steps // 2 and draw.random() < 0.5:
                source = "proofs"
            length = int(draw.integers(30, 45) if source == "proofs" else draw.integers(8, 36))
            ids, lag, worker = prompt_of(design, draw, source, length), lag_of(plan.lag, step, draw), draw.integers(4)
            for sample in range(SAMPLES):
                name = f"{step:02d}-{prompt:02d}"
                batch.append({
                    "step": step, "policy_version": step - lag, "group_id": name, "sample_id": f"{name}-{sample}",
                    "worker": f"w{worker if by_prompt else draw.integers(4)}", "data_source": source,
                    "prompt_length": length, "prompt": ids, "lag": lag,
                })  # fmt: skip
        longest = LONGEST if plan.run != "growing" else 8 + (LONGEST - 8) * step // (steps - 1)
        sharp = 1.0 + 0.06 * step * (plan.run == "collapse")
        history_now = [weights | {"sharp": torch.tensor(sharp)} for weights in history[: step + 1]]
        told = [Settings(behind=row["lag"]) for row in batch]
        acts = [{part.act for part in plan.parts if part.act and part.holds(row)} for row in batch]
        for part in plan.parts:
            told = [
                replace(one, **part.settings) if part.settings and part.holds(row) else one
                for one, row in zip(told, batch, strict=True)
            ]
        if plan.lag == "told":
            for row, settings in zip(batch, told, strict=True):
                row["policy_version"] = step - min(settings.behind, step)
        tokens = torch.zeros(len(batch), longest, dtype=torch.long)
        rollout, sound_rollout = torch.zeros(len(batch), longest), torch.zeros(len(batch), longest)
        for settings in dict.fromkeys(told):
            at = [i for i, one in enumerate(told) if one == settings]
            read = [batch[i]["prompt"] for i in at]
            run = engine_weights(history_now[max(step - settings.behind, 0)], settings, plan.engine)
            tokens[at], rollout[at] = sampled(design, run, read, settings, random, longest)
            sound_rollout[at] = rollout[at]
            if settings != Settings():
                now = engine_weights(history_now[step], Settings(), plan.engine)
                sound_rollout[at] = sampled(design, now, read, Settings(), random, longest, tokens[at])[1]
        is_stop = (tokens < stops).numpy()
        stopped = np.any(is_stop, axis=1)
        ends = np.where(stopped, np.argmax(is_stop, axis=1) + 1, longest)
        labels = tokens.clone()
        for i, act in enumerate(acts):
            if "end_token" in act and not stopped[i]:
                labels[i, -1] = 0
        training = engine_weights(history_now[step], Settings(), plan.trainer)
        with torch.no_grad():
            read = [row["prompt"] for row in batch]
            sound_old = scored(design, training, read, tokens, tokens)
            old = sound_old
            if {"template", "template_end", "cut_left", "cut_right", "end_token", "dropout"} & set().union(*acts):
                read = [training_prompt(design, row, act) for row, act in zip(batch, acts, strict=True)]
                dropout = 0.02 if "dropout" in acts[0] else 0.0
                old = scored(design, training, read, tokens, labels, dropout)
        gains = advantages(rewarded(design, tokens).reshape(-1, SAMPLES)).ravel()
        for i, row in enumerate(batch):
            end = int(ends[i])
            rows.columns.append(
                row
                | {"finish_reason": "stop" if stopped[i] else "length", "token_ids": tokens[i, :end].tolist()}
                | {"advantages": float(gains[i]), "reward": float(rewarded(design, tokens[i : i + 1])[0])}
            )
            for column, values in (
                (rows.rollout, rollout), (rows.old, old),
                (rows.sound_rollout, sound_rollout), (rows.sound_old, sound_old),
            ):  # fmt: skip
                column.append(values[i, :end].numpy().astype(np.float64))
    for part in plan.parts:
        if part.act in ACTS:
            ACTS[part.act](rows, [i for i, row in enumerate(rows.columns) if part.holds(row)], draw)
    return rows


WEIGHTS = ("stale_policy", "drift", "other_weights", "column")
PROMPT = ("column", "first_token", "position_decays")


def plans(steps: int, draw: np.random.Generator, is_moe: bool) -> dict[str, Plan]:
    """Every kind of dump, for a run of so many steps; where it begins and its sizes are drawn."""
    half = int(draw.integers(round(0.4 * steps), round(0.7 * steps) + 1))
    late = steps - 3
    after, rest = tuple(map(str, range(half, steps))), tuple(map(str, range(late, steps)))
    worker = f"w{draw.integers(4)}"
    source = SOURCES[int(draw.integers(3))]
    temperature = float(draw.choice((0.8, 0.88, 1.12, 1.2)))
    top_p, min_p = float(draw.choice((0.85, 0.9, 0.95))), float(draw.choice((0.03, 0.08, 0.12)))
    penalty = float(draw.choice((1.05, 1.15)))
    missed = tuple(range(2, steps, 3))
    only = int(draw.integers(4, steps - 1))

    def placed(kind: str, accept: tuple[str, ...], part: Part, **more: Any) -> Plan:
        return Plan(kind, accept, (part,), part.column, part.levels, **more)

    def since(kind: str, accept: tuple[str, ...], **more: Any) -> Plan:
        parameters = {name: value for name, value in more.items() if name in ("temperature", "top_p", "min_p")}
        part = Part(more, column="step", levels=after)
        return placed(kind, (*accept, "column"), part, since=half, parameters=parameters)

    def act_since(kind: str, accept: tuple[str, ...], act: str, start: int, levels: tuple[str, ...]) -> Plan:
        return placed(kind, accept, Part(act=act, column="step", levels=levels), since=start)

    def on_worker(kind: str, accept: tuple[str, ...], part: Part, **more: Any) -> Plan:
        return placed(kind, accept, replace(part, column="worker", levels=(worker,)), **more)

    tail = ("heavy_tail",) if is_moe else ()
    grid = ("grid", "column", "noise", *tail)
    clean = ("noise", *tail)
    return {
        "temp_from_step": since("temperature", ("temperature",), temperature=temperature),
        "temp_worker": on_worker(
            "worker", ("column",), Part({"temperature": temperature}), parameters={"temperature": temperature}
        ),
        "topp_all": Plan("top_p", ("top_p",), (Part({"top_p": top_p}),), parameters={"top_p": top_p}),
        "topp_from_step": since("top_p", ("top_p",), top_p=top_p),
        "topp_worker": on_worker("worker", ("column",), Part({"top_p": top_p}), parameters={"top_p": top_p}),
        "minp_all": Plan("min_p", ("min_p",), (Part({"min_p": min_p}),), parameters={"min_p": min_p}),
        "minp_from_step": since("min_p", ("min_p",), min_p=min_p),
        "int8_from_step": since("quant_from", ("other_weights",), bits=8),
        "int4_from_step": since("quant_from", ("other_weights",), bits=4),
        "sync_missed_3rd": placed(
            "sync_missed",
            WEIGHTS,
            Part({"behind": 2}, column="step", levels=tuple(map(str, missed))),
            since=2,
            note="every third step: weights 2 updates old; policy_version says new",
        ),
        "sync_missed_once": placed(
            "sync_missed",
            WEIGHTS,
            Part({"behind": 3}, column="step", levels=(str(only),)),
            since=only,
            until=only,
            note="one step: weights 3 updates old; policy_version says new",
        ),
        "never_synced": Plan(
            "stale",
            WEIGHTS,
            (Part({"behind": 99}),),
            since=1,
            note="the engine keeps the first weights; policy_version says new",
        ),
        "lag_waves": Plan(
            "stale", WEIGHTS, (), "lag", ("2", "4"), lag="waves", note="lag 0 0 2 2 4 0 0 ..., told by policy_version"
        ),
        "lag_prompts": Plan(
            "stale",
            WEIGHTS,
            (),
            "lag",
            ("3",),
            lag="prompts",
            note="a third of the prompts from step 3 on, told by policy_version",
        ),
        "worker_stale": on_worker("worker", WEIGHTS, Part({"behind": 4})),
        "worker_lora": on_worker("worker", ("column",), Part({"adapter": 0.02})),
        "template_source": placed("template", PROMPT, Part(act="template", column="data_source", levels=(source,))),
        "template_from_step": act_since("template", PROMPT, "template", half, after),
        "template_end_source": placed(
            "template", PROMPT, Part(act="template_end", column="data_source", levels=(source,))
        ),
        "template_end_from_step": act_since("template", PROMPT, "template_end", half, after),
        "prompts_cut_left": Plan(
            "prompt_cut", (*PROMPT, "some_rows"), (Part(act="cut_left"),), "prompt_length", ("long",)
        ),
        "prompts_cut_right": Plan(
            "prompt_cut", (*PROMPT, "some_rows"), (Part(act="cut_right"),), "prompt_length", ("long",)
        ),
        "mispaired_2pct": Plan("mispaired", ("mispaired_rows",), (Part(act="mispair_2"),)),
        "mispaired_20pct_from_step": act_since("mispaired", ("mispaired_rows", "column"), "mispair_20", late, rest),
        "worker_slip": on_worker("slipped", ("slipped_rows", "column"), Part(act="slip")),
        "truncated_end_token": Plan(
            "truncated", ("last_token", "column"), (Part(act="end_token"),), "finish_reason", ("length",)
        ),
        "grid_from_step": act_since("grid", grid, "grid", half, after),
        "reppen_from_step": since("repetition_penalty", ("repetition_penalty",), penalty=penalty),
        "dropout_in_scoring": Plan("dropout", ("other_weights", "unclear", "no_cause"), (Part(act="dropout"),)),
        "shifted_from_step": act_since("shifted", ("shifted_columns", "slipped_rows", "column"), "shift", half, after),
        "zeros_2pct": Plan("zero_rows", ("unscored_zeros", "some_rows", "mispaired_rows"), (Part(act="zeros"),)),
        "topp_all_stale_from_step": Plan(
            "two_faults",
            ("top_p", *WEIGHTS),
            (Part({"top_p": 0.9}), Part({"behind": 4}, column="step", levels=after)),
            since=half,
            parameters={"top_p": 0.9},
            also=("top_p", "stale_policy"),
            lag="told",
            note="policy_version tells the lag",
        ),
        "temp_worker_mispaired": Plan(
            "two_faults",
            ("column", "mispaired_rows"),
            (Part({"temperature": 0.8}, column="worker", levels=(worker,)), Part(act="mispair_2")),
            "worker",
            (worker,),
            parameters={"temperature": 0.8},
            also=("column", "mispaired_rows"),
        ),
        "template_source_topp": Plan(
            "two_faults",
            ("top_p", *PROMPT),
            (Part({"top_p": 0.9}), Part(act="template_end", column="data_source", levels=(source,))),
            "data_source",
            (source,),
            parameters={"top_p": 0.9},
            also=("top_p", "column"),
        ),
        "clean_bf16": Plan("clean", clean, trainer=BF16),
        "clean_bf16_fp32": Plan("clean", clean),
        "clean_fp32_bf16": Plan("clean", clean, engine=FP32, trainer=BF16),
        "clean_fp32": Plan("clean", ("noise", "none"), engine=FP32),
        "clean_entropy_collapse": Plan("clean_mix", clean, run="collapse", trainer=BF16),
        "clean_growing_length": Plan("clean_mix", clean, run="growing"),
        "clean_hard_source_late": Plan("clean_mix", clean, run="hard_late", trainer=BF16),
    }


PLAN = {
    "gru_sure": "temp_from_step topp_all minp_all int4_from_step sync_missed_3rd lag_waves worker_stale worker_lora "
    "template_source prompts_cut_left mispaired_2pct grid_from_step reppen_from_step topp_all_stale_from_step "
    "clean_bf16 clean_bf16_fp32 clean_growing_length clean_fp32",
    "gru_open": "temp_worker topp_from_step int8_from_step never_synced worker_slip truncated_end_token "
    "template_end_from_step dropout_in_scoring zeros_2pct shifted_from_step temp_worker_mispaired "
    "clean_bf16_fp32 clean_entropy_collapse",
    "alibi_sure": "temp_worker topp_from_step minp_from_step int8_from_step sync_missed_once worker_lora worker_slip "
    "template_end_source mispaired_20pct_from_step truncated_end_token reppen_from_step temp_worker_mispaired "
    "zeros_2pct clean_bf16 clean_fp32_bf16 clean_entropy_collapse clean_hard_source_late",
    "alibi_open": "temp_from_step minp_all topp_worker int4_from_step sync_missed_3rd lag_prompts worker_stale "
    "prompts_cut_right mispaired_2pct grid_from_step shifted_from_step template_source_topp "
    "clean_bf16 clean_bf16_fp32 clean_growing_length clean_hard_source_late",
    "moe_sure": "temp_from_step topp_all int4_from_step never_synced worker_stale template_from_step temp_worker "
    "mispaired_20pct_from_step sync_missed_3rd topp_all_stale_from_step "
    "clean_bf16 clean_bf16_fp32 clean_growing_length clean_fp32",
    "moe_open": "minp_from_step sync_missed_once lag_waves worker_lora worker_slip template_source reppen_from_step "
    "dropout_in_scoring prompts_cut_left clean_bf16_fp32 clean_entropy_collapse clean_hard_source_late",
}


def truth_of(plan: Plan, model: str, steps: int, rows: Rows) -> dict[str, Any]:
    """What `_truth.json` says of a dump."""
    found, sound = (
        np.concatenate(old) - np.concatenate(rollout)
        for old, rollout in ((rows.old, rows.rollout), (rows.sound_old, rows.sound_rollout))
    )
    truth = {
        "accept": list(plan.accept), "parameters": plan.parameters, "model": model, "kind": plan.kind,
        "sequences": len(rows.columns), "tokens": len(found), "steps": steps, "since_step": plan.since,
        "until_step": plan.until,
        "where": {"column": plan.column, "levels": list(plan.levels)} if plan.column else None,
        "mean_log_prob": round(float(np.concatenate(rows.rollout).mean()), 3),
        "sure": round(float((np.concatenate(rows.sound_rollout) > np.log(0.99)).mean()), 3),
        "noise_rms": round(float(np.sqrt(np.mean(sound**2))), 7), "rms": round(float(np.sqrt(np.mean(found**2))), 7),
    }  # fmt: skip
    if not plan.kind.startswith("clean"):
        share = float(1.0 - np.sum(sound**2) / np.sum(found**2))
        truth |= {"share": round(share, 3)} | ({"weak": True} if share < 0.3 else {})
        if share < 0.5 and DESIGNS[model].experts:
            truth["accept"] = sorted({*plan.accept, "heavy_tail"})
    return truth | ({"also": list(plan.also)} if plan.also else {}) | ({"note": plan.note} if plan.note else {})


def write(rows: Rows, path: Path) -> None:
    """Write a dump."""
    hidden = ("prompt", "lag")
    columns = {name: [row[name] for row in rows.columns] for name in rows.columns[0] if name not in hidden}
    columns |= {"rollout_log_probs": [row.astype(np.float32) for row in rows.rollout]}
    columns |= {"old_log_probs": [row.astype(np.float32) for row in rows.old]}
    pq.write_table(pa.table(columns), path)


def main() -> None:
    """Make the dumps and their truths."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=50)
    parser.add_argument("--only", default="", help="dumps whose name holds this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    truth_file = options.folder / "_truth.json"
    truths = dict[str, Any]()
    if options.only and truth_file.exists():
        truths = json.loads(truth_file.read_text())["files"]
    for number, (model, design) in enumerate(DESIGNS.items()):
        names = [name for name in PLAN[model].split() if options.only in f"{model}__{name}"]
        history = trained(design, 1000 * options.seed + number) if names else []
        for name in names:
            key = int.from_bytes(hashlib.sha256(f"{options.seed} {model} {name}".encode()).digest()[:4], "big") >> 1
            draw = np.random.default_rng(key)
            steps = int(draw.integers(8, STEPS + 1))
            plan = plans(steps, draw, bool(design.experts))[name]
            rows = made(design, history, plan, steps, key)
            path = options.folder / f"{model}__{name}.parquet"
            write(rows, path)
            truth = truth_of(plan, model, steps, rows) | {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            truths[path.stem] = truth
            shown = ("sequences", "tokens", "mean_log_prob", "sure", "noise_rms", "rms", "share")
            print(path.stem, *(truth.get(name) for name in shown), flush=True)
    note = f"made by tests/benchmarks/made_runs.py --seed {options.seed}; see its docstring"
    truth_file.write_text(json.dumps({"note": note, "files": truths}, indent=1) + "\n")


if __name__ == "__main__":
    main()
