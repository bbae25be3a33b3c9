"""Which numbers move before the reward falls: small models trained here, with rollouts that are wrong by design.

    python tests/benchmarks/trained_runs.py FOLDER [RUN...]

A decoder of 0.4 M parameters sorts eight digits; a response is right (reward 1) or not (0).  It is shown sorted digits
until it is right now and then, and from there all runs go: GRPO, without a correction and without a KL term, where the
trainer takes what the rollout sampled as if it had sampled it itself.  RUNS says what each rollout's weights are.
`Recorder` writes each step to FOLDER/RUN, and FOLDER/RUN.json holds the rewards of the trainer's own policy at each
step, on prompts that nothing is trained on: what falls is told by these, for a rollout of old weights goes on as before
while the trainer's policy is lost.  A run that is there is not trained again.  Then its row is printed, and at the end
how often, and how early, each number moved.

What moves is told by one rule, and what falls by another (`moved`, `fell`), both fixed before a run was looked at.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rlcorr_cli import Recorder, analyze, diagnose, watch
from rlcorr_cli.causes.table import ALL_CAUSES
from rlcorr_cli.metrics.catalog import DEFINITIONS
from rlcorr_cli.results.verdict import ROUNDING_K3
from rlcorr_cli.results.watched import DOUBLED, Alarm

DIGITS, SEP, END, WORDS = 8, 10, 11, 12
RESPONSE = DIGITS + 2
"""Tokens at most: digits, their end, and one more."""
WIDTH, HEADS, LAYERS = 104, 4, 3
PROMPTS, GROUP, HELD = 24, 8, 128
TAUGHT, STEPS, RATE = 70, 160, 3e-4
EARLY, IN_A_ROW = slice(5, 25), 3
"""The steps whose range a number leaves, and for how many steps it must."""
MEAN_OF, FALLS_TO, STAYS = 5, 0.7, 20
"""As of `fell`."""
NUMBERS = (
    *("kl", "k3_kl", "chi2_token", "seq_ess", "token_ess", "logprob_abs_diff_mean", "logprob_abs_diff_max"),
    *("prob_abs_diff_mean", "prob_abs_diff_max", "extreme_token_fraction", "log_ppl_diff"),
    *("training_ppl", "rollout_ppl", "length_mean", "reward_mean"),
)
BOTH_WAYS = ("training_ppl", "rollout_ppl", "length_mean")
"""Which of these move up or down; the others do so to their worse side."""
OF_ONE_POLICY = (*BOTH_WAYS, "reward_mean")


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, past: list[Tensor]) -> Tensor:
        """x: [B, T, WIDTH].  past: keys and values of the tokens before, to which those of x are added."""
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        if past:
            k, v = (torch.cat(both, 2) for both in zip(past, (k, v), strict=True))
        past[:] = k, v
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=t > 1).transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(DIGITS + 1 + RESPONSE, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: Tensor, past: Sequence[list[Tensor]] | None = None) -> Tensor:
        """Log-probs of the next token, f32[B, T, WORDS]."""
        past = [[] for _ in self.blocks] if past is None else past
        begins = past[0][0].shape[2] if past[0] else 0
        x = self.words(ids) + self.places.weight[begins : begins + ids.shape[1]]
        for block, held in zip(self.blocks, past, strict=True):
            x = block(x, held)
        return self.head(self.norm(x)).log_softmax(-1)


def prompts(n: int, generator: torch.Generator) -> Tensor:
    digits = torch.randint(10, (n, DIGITS), generator=generator)
    return torch.cat([digits, torch.full((n, 1), SEP)], 1)


def of_tokens(log_probs: Tensor, ids: Tensor) -> Tensor:
    return log_probs.gather(-1, ids[..., None])[..., 0]


@torch.no_grad()
def sampled(policy: Decoder, asked: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Responses, their log-probs as they were drawn, and the mask, which ends with END: [B, RESPONSE] each."""
    past, ids, responses, drawn = [[] for _ in policy.blocks], asked, list[Tensor](), list[Tensor]()
    for _ in range(RESPONSE):
        log_probs = policy(ids, past)[:, -1]
        ids = torch.multinomial(log_probs.exp(), 1, generator=generator)
        responses.append(ids)
        drawn.append(log_probs.gather(1, ids))
    response = torch.cat(responses, 1)
    ended = (response == END).long()
    return response, torch.cat(drawn, 1), (ended.cumsum(1) - ended == 0).long()


def rewards(asked: Tensor, response: Tensor) -> Tensor:
    """1 where a response is the sorted digits and their end."""
    right = torch.cat([asked[:, :DIGITS].sort(1).values, torch.full((len(asked), 1), END)], 1)
    return (response[:, : DIGITS + 1] == right).all(1).float()


def taught(steps: int) -> Decoder:
    """The model that all runs start from: shown sorted digits."""
    torch.manual_seed(0)
    generator, policy = torch.Generator().manual_seed(0), Decoder()
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-3, weight_decay=0.0)
    for _ in range(steps):
        asked = prompts(128, generator)
        right = torch.cat([asked[:, :DIGITS].sort(1).values, torch.full((128, 1), END)], 1)
        log_probs = policy(torch.cat([asked, right[:, :-1]], 1))[:, DIGITS:]
        loss = -of_tokens(log_probs, right).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return policy


@torch.no_grad()
def rounded(weights: Mapping[str, Tensor], bits: float) -> dict[str, Tensor]:
    """Weights as a rollout engine holds them: matrices in bf16 (16 bits), or each row of them in whole steps of its
    largest (fewer bits)."""

    def of(matrix: Tensor) -> Tensor:
        if matrix.ndim < 2 or bits == 32:
            return matrix.clone()
        if bits == 16:
            return matrix.bfloat16().float()
        step = matrix.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
        return (matrix / step).round() * step

    return {name: of(matrix) for name, matrix in weights.items()}


@dataclass(frozen=True)
class Kind:
    """What a run's rollouts come from, and how it trains.

    seed: of its prompts and samples.  bits: of the rollout's weights, at each step.  lag: updates since they were the
    trainer's.  updates: of one batch.
    """

    says: str
    seed: int
    bits: Callable[[int], float] = lambda _: 32
    lag: Callable[[int], int] = lambda _: 0
    updates: int = 1


def constant(bits: float) -> Callable[[int], float]:
    return lambda _: bits


def behind(updates: int) -> Callable[[int], int]:
    return lambda _: updates


def fewer(step: int) -> float:
    return 8 - 6 * step / STEPS


def more_each(steps: int) -> Callable[[int], int]:
    return lambda step: step // steps


def since_60(step: int) -> int:
    return max(0, step - 60)


RUNS = {
    "exact": Kind("the trainer's", 10),
    "exact-2": Kind("the trainer's", 11),
    "bf16": Kind("bf16", 12, constant(16)),
    "8-bits": Kind("8 bits", 13, constant(8)),
    "4-bits": Kind("4 bits", 14, constant(4)),
    "3-bits": Kind("3 bits", 15, constant(3)),
    "fewer-bits": Kind("8 bits, 2 at the end", 16, fewer),
    "fewer-bits-2": Kind("8 bits, 2 at the end", 17, fewer),
    "lag-2": Kind("2 updates old", 19, lag=behind(2)),
    "lag-4": Kind("4 updates old", 20, lag=behind(4)),
    "lag-8": Kind("8 updates old", 21, lag=behind(8)),
    "lag-grows": Kind("older by 1 each 20 steps", 22, lag=more_each(20)),
    "lag-grows-2": Kind("older by 1 each 10 steps", 23, lag=more_each(10)),
    "lag-grows-3": Kind("older by 1 each 10 steps", 24, lag=more_each(10)),
    "no-sync": Kind("of step 60, from there on", 25, lag=since_60),
    "no-sync-2": Kind("of step 60, from there on", 26, lag=since_60),
    "updates": Kind("3 bits, 4 updates a batch", 28, constant(3), updates=4),
}


def train(start: Decoder, kind: Kind, folder: Path, *, steps: int = STEPS) -> list[float]:
    """Train by GRPO, and record each step in a folder.  Returned is the mean reward of the policy itself at each."""
    policy, engine, generator = Decoder(), Decoder(), torch.Generator().manual_seed(kind.seed)
    policy.load_state_dict(start.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), RATE, betas=(0.9, 0.95), weight_decay=0.0)
    versions, held = list[dict[str, Tensor]](), list[float]()
    unseen = torch.Generator().manual_seed(kind.seed + 1000)
    with Recorder(folder, patience=60, strict=True) as recorder:
        for step in range(steps):
            asked = prompts(HELD, unseen)
            held.append(float(rewards(asked, sampled(policy, asked, unseen)[0]).mean()))
            versions = [*versions, {name: of.clone() for name, of in policy.state_dict().items()}]
            lag = min(kind.lag(step), step)
            versions = versions[-lag - 1 :]
            engine.load_state_dict(rounded(versions[0], kind.bits(step)))
            asked = prompts(PROMPTS, generator).repeat_interleave(GROUP, 0)
            response, drawn, mask = sampled(engine, asked, generator)
            reward = rewards(asked, response)
            of_group = reward.view(-1, GROUP)
            advantages = (of_group - of_group.mean(1, keepdim=True)) / (of_group.std(1, keepdim=True) + 1e-4)
            advantages, ids = advantages.reshape(-1, 1), torch.cat([asked, response[:, :-1]], 1)
            with torch.no_grad():
                old = of_tokens(policy(ids)[:, DIGITS:], response)
            recorder.write(
                {
                    "prompt_ids": asked,
                    "response_token_ids": response,
                    "response_mask": mask,
                    "rollout_log_probs": drawn,
                    "old_log_probs": old,
                    "advantages": advantages[:, 0],
                    "reward": reward,
                    "policy_version": torch.full((len(asked),), step - lag),
                },
                step=step,
            )
            for _ in range(kind.updates):
                rho = (of_tokens(policy(ids)[:, DIGITS:], response) - old).exp()
                clipped = rho.clamp(0.8, 1.2)
                loss = -(torch.minimum(rho * advantages, clipped * advantages) * mask).sum() / mask.sum()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
                optimizer.step()
    return held


def moved(values: Sequence[float], *, both_ways: bool = False) -> int | None:
    """The step at which a number is known to have left the range of its steps EARLY: it is above it by more than the
    range is wide (both_ways: or below it), IN_A_ROW steps running; None where it never is."""
    low, high = min(values[EARLY]), max(values[EARLY])
    top, bottom = high + (high - low), low - (high - low)
    run = 0
    for step, value in enumerate(values[EARLY.stop :], EARLY.stop):
        run = run + 1 if value > top or (both_ways and value < bottom) else 0
        if run == IN_A_ROW:
            return step
    return None


def fell(rewards: Sequence[float]) -> int | None:
    """The step at which the mean reward of the last MEAN_OF steps is below FALLS_TO of its best so far, and stays so
    for STAYS steps, or to the end for MEAN_OF steps or more; None where it never is."""
    means = [fmean(rewards[step - MEAN_OF + 1 : step + 1]) for step in range(MEAN_OF - 1, len(rewards))]
    for place in range(1, len(means) - MEAN_OF + 1):
        if all(mean < FALLS_TO * max(means[:place]) for mean in means[place : place + STAYS]):
            return place + MEAN_OF - 1
    return None


_OF_NAME = dict.fromkeys(ALL_CAUSES, "cause")
ALARMS = {
    "rule": "`watch`: a rule is broken",
    "rise": "`watch`: k3_kl has doubled",
    "cause": "`watch`: a cause is named",
}


@dataclass(frozen=True)
class Row:
    """What came of a run.  moved: the step of each number that moved; alarms: of the first alarm of each kind."""

    says: str
    rewards: tuple[float, ...]
    fell: int | None
    moved: Mapping[str, int]
    alarms: Mapping[str, int]
    cause: str


def judged(says: str, folder: Path, rewards: Sequence[float]) -> Row:
    groups = analyze(folder, group_by="step").groups
    of = {name: [group.values[name] for group in groups] for name in NUMBERS}
    is_gap = [value > ROUNDING_K3 for value in of["k3_kl"]]
    steps = dict[str, int]()
    for name, values in of.items():
        both_ways = name in BOTH_WAYS
        worse = values if both_ways else [DEFINITIONS[name].badness(value) for value in values]
        if name == "reward_mean":
            worse = [-value for value in values]
        elif name not in OF_ONE_POLICY:  # of rounding alone none moves
            worse = [value if is_one else min(worse) for value, is_one in zip(worse, is_gap, strict=True)]
        step = moved(worse, both_ways=both_ways)
        if step is not None:
            steps[name] = step
    alarms = dict[str, int]()

    def hear(told: object) -> None:
        if isinstance(told, Alarm):
            for reason in told.reasons:
                alarms.setdefault("rise" if reason.name == DOUBLED else _OF_NAME.get(reason.name, "rule"), told.step)

    with TemporaryDirectory() as state:
        watch(folder, once=True, state=Path(state, "state.rlcorr"), told=hear)
    found = diagnose(folder)
    return Row(says, tuple(rewards), fell(rewards), steps, alarms, found.verdict)


def shown(row: Row) -> str:
    means = [fmean(row.rewards[at : at + MEAN_OF]) for at in range(len(row.rewards) - MEAN_OF + 1)]
    first = min(row.moved.values(), default=None)
    names = [name for name in row.moved if row.moved[name] == first]
    cells = (
        row.says,
        f"{means[0]:.2f}, {max(means):.2f}, {means[-1]:.2f}",
        "–" if row.fell is None else str(row.fell),
        "–" if first is None else f"{', '.join(names) if len(names) < 4 else f'{len(names)} numbers'}: {first}",
        ", ".join(f"{kind} {row.alarms[kind]}" for kind in ALARMS if kind in row.alarms) or "–",
        row.cause,
    )
    return f"| {' | '.join(cells)} |"


def numbers(rows: Sequence[Row]) -> Iterator[str]:
    """A row for each number and kind of alarm: of the runs that fall once a number could have moved, in how many it
    came before, and how many steps (median, least, most); and of those that do not fall, in how many it came."""
    falling = [row for row in rows if row.fell is not None and row.fell >= EARLY.stop + IN_A_ROW]
    holding = [row for row in rows if row.fell is None]
    yield f"| | before the fall, of {len(falling)} | steps before | without a fall, of {len(holding)} |"
    yield "|---|---|---|---|"
    for name in (*NUMBERS, *ALARMS):
        came = [{**row.moved, **row.alarms}.get(name) for row in falling]
        leads = [row.fell - step for row, step in zip(falling, came, strict=True) if step is not None and row.fell]
        leads = [lead for lead in leads if lead > 0]
        steps = f"{median(leads):g} ({min(leads)} to {max(leads)})" if leads else "–"
        n_false = sum(name in row.moved or name in row.alarms for row in holding)
        yield f"| {ALARMS.get(name, name)} | {len(leads)} | {steps} | {n_false} |"


def main(folder: Path, names: Sequence[str]) -> None:
    """Train what is not there, and print."""

    def rewards_of(name: str) -> Path:
        return folder / f"{name}.json"

    torch.set_num_threads(1)
    started, rows, start = time.process_time(), list[Row](), None
    print("| rollout's weights | reward: first, best, last | falls | moves first | first alarms | `diagnose` |")
    print("|---|---|---|---|---|---|")
    for name, kind in RUNS.items():
        if names and name not in names:
            continue
        if not rewards_of(name).exists():
            start = start or taught(TAUGHT)
            held = train(start, kind, folder / name)
            rewards_of(name).write_text(json.dumps(held), encoding="utf-8")
        rows.append(judged(kind.says, folder / name, json.loads(rewards_of(name).read_text(encoding="utf-8"))))
        print(shown(rows[-1]), flush=True)
    print("", *numbers(rows), f"{time.process_time() - started:.0f} s of CPU.", sep="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
