"""Presets against the frameworks' own functions, on the golden input; verl's are in tests/golden.

    python tests/benchmarks/peers.py SITE

SITE holds trl, openrlhf, skyrl and areal as `pip install --no-deps --target SITE` left them (skyrl with
--ignore-requires-python below Python 3.12); one that is not there is skipped.  What runs is the frameworks' own code,
unchanged.  None of them imports without its heavy dependencies, so single definitions are taken out of their files,
and what a file imports besides is stubbed.

Measured with trl 1.16.0, openrlhf 0.11.2, skyrl 0.4.0 and areal 1.0.4: all agree.  SkyRL and AReaL add and
exponentiate in float32, which costs them up to 5e-6 of a sequence's weight.
"""

import __future__

import ast
import importlib
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from torch import Tensor

from rlcorr_cli.measure.arrays import CPU
from rlcorr_cli.measure.correct import correct
from rlcorr_cli.measure.tokens import Tokens
from rlcorr_cli.plans.presets import preset
from rlcorr_cli.reading.batch import Batch

GOLDEN = Path(__file__).parent.parent / "golden" / "input.parquet"
TOLERANCE = {"skyrl": 1e-5, "areal": 1e-5}
"""Of frameworks that compute in float32; 1e-6 else."""


@dataclass(frozen=True)
class Padded:
    """The golden input as frameworks take it: [rows, longest], with zeros and a mask of 0 after each row's end."""

    train: Tensor
    rollout: Tensor
    mask: Tensor
    advantages: Tensor


Outcome = tuple[Tensor | None, Tensor | None]
"""Weights and kept tokens, [rows, longest]; None for what the method leaves alone."""


def golden() -> Padded:
    """The golden input, float64."""
    table = pq.read_table(GOLDEN)
    columns = [table[name].to_pylist() for name in ("old_log_probs", "rollout_log_probs", "response_mask")]
    longest = max(map(len, columns[0]))
    train, rollout, mask = (
        torch.tensor([row + [0.0] * (longest - len(row)) for row in column], dtype=torch.float64) for column in columns
    )
    return Padded(train, rollout, mask, torch.tensor(table["advantage"].to_pylist(), dtype=torch.float64))


def ours(name: str, data: Padded) -> Outcome:
    """The preset's weights and kept tokens on valid tokens, 0 elsewhere.  Current policy: the training one."""
    at = data.mask.bool()
    lengths = at.sum(1).numpy()
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    train, rollout = (one[at].numpy() for one in (data.train, data.rollout))
    advantages = np.repeat(data.advantages.numpy(), lengths)
    rows = np.zeros(len(lengths), np.int64)
    batch = Batch(
        offsets=offsets,
        old_logp=train,
        rollout_logp=rollout,
        current_logp=train,
        advantages=advantages,
        n_masked=rows,
        reward=None,
        group_index=rows.astype(np.int32),
        group_keys=((None,),),
    )
    tokens = Tokens.of(batch, CPU)
    corrected = correct(tokens, preset(name).plan, {"m2po": np.full(len(rows), m2po_bound(train - rollout))})

    def padded(flat: Tensor) -> Tensor:
        return torch.zeros_like(data.train).masked_scatter(at, flat.double())

    weights = None
    if corrected.weighted is not None:
        applied = corrected.weighted.applied
        on_tokens = corrected.weighted.weighting.scope == "token"
        weights = padded(applied if on_tokens else tokens.rows.spread(applied))
    return weights, None if corrected.keep is None else padded(corrected.keep)


def m2po_bound(log_ratio: np.ndarray) -> float:
    """The largest squared log-ratio that M2PO's 0.04 lets stay, by the package's own search."""
    from rlcorr_cli.totals.bins import FLOAT_BITS
    from rlcorr_cli.totals.budget_search import binned_values, crossing, cut

    squares = log_ratio**2
    at = crossing(binned_values(squares), 0.04)
    return cut(at, [squares[FLOAT_BITS.bins_of(squares) == at.bucket]], 0.04)[0]


# ---------------------------------------------------------------- taking definitions out of a framework's files


def stub(name: str, **contents: Any) -> ModuleType:
    """A module that holds only what is given."""
    module = ModuleType(name)
    module.__path__ = []
    vars(module).update(contents)
    sys.modules[name] = module
    return module


def run(nodes: list[ast.stmt], path: Path, names: dict[str, Any]) -> dict[str, Any]:
    """Execute some of a file's statements; annotations stay text."""
    tree = ast.fix_missing_locations(ast.Module(nodes, []))
    exec(compile(tree, path, "exec", flags=__future__.annotations.compiler_flag), names)
    return names


def definitions(path: Path, wanted: tuple[str, ...], within: str = "", **names: Any) -> dict[str, Any]:
    """Functions and classes of a file, or of a class in it, by name."""
    body: list[ast.stmt] = ast.parse(path.read_text()).body
    if within:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == within).body
    found = [node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name in wanted]
    for node in found if within else []:
        node.decorator_list = []
    return run(list(found), path, {"torch": torch, "math": math, "__name__": "lifted", **names})


def module(name: str, path: Path) -> Any:
    """A file as a module of that name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


# ---------------------------------------------------------------- one function per framework: preset -> its outcome


def trl(site: Path, data: Padded) -> Iterator[tuple[str, Outcome]]:
    """The ratio is computed in the middle of a method: its own block runs here, on a stand-in for the trainer."""
    path = site / "trl" / "trainer" / "grpo_trainer.py"
    test = "self.use_vllm and self.vllm_importance_sampling_correction"
    blocks = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.If)
        and ast.unparse(node.test) == test
        and "sampling_ratio = torch.exp" in ast.unparse(node)
    ]
    for mode in ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask"):
        trainer = SimpleNamespace(
            vllm_importance_sampling_mode=mode,
            vllm_importance_sampling_clip_max=3.0,
            vllm_importance_sampling_clip_min=None,
        )
        given = {
            "self": trainer,
            "torch": torch,
            "math": math,
            "old_per_token_logps": data.train,
            "sampling_per_token_logps": data.rollout,
            "completion_mask": data.mask,
            "tool_mask": None,
        }
        yield f"trl_{mode}", (run(blocks[0].body, path, given)["vllm_importance_sampling_ratio"] * data.mask, None)
    mask = definitions(path, ("get_off_policy_mask",), "GRPOTrainer")["get_off_policy_mask"]
    keep = mask(data.advantages[:, None], data.train, data.rollout, data.mask, 1e-4)
    yield "trl_opsm", (None, keep * data.mask)


def openrlhf(site: Path, data: Padded) -> Iterator[tuple[str, Outcome]]:
    """At log_probs = old_log_probs the loss is linear in the advantages, and its gradient is what tokens weigh."""
    models = site / "openrlhf" / "models"
    stub("deepspeed")
    stub("openrlhf")
    stub("openrlhf.models").__path__ = [str(models)]
    masked_mean = definitions(models / "utils.py", ("masked_mean",))["masked_mean"]
    stub("openrlhf.models.utils", masked_mean=masked_mean)
    loss = module("openrlhf.models.loss", models / "loss.py")
    for name, level, mode in (("tis", "token", "clip"), ("icepop", "token", "mask"), ("seq_mask_tis", "seq", "mask")):
        weight = torch.ones_like(data.train, requires_grad=True)
        policy = loss.PolicyLoss(is_correction_level=level, is_correction_mode=mode, is_correction_threshold=(0.5, 5.0))
        given = {"rollout_log_probs": data.rollout, "dp_size": 1, "batch_num_tokens": 1.0}
        policy(data.train, data.train, weight, action_mask=data.mask, **given)[0].backward()
        assert weight.grad is not None
        yield f"openrlhf_{name}", (-weight.grad, None)


def skyrl(site: Path, data: Padded) -> Iterator[tuple[str, Outcome]]:
    """compute_off_policy_correction with its own config class."""
    base = site / "skyrl"
    utils = base / "backends" / "skyrl_train" / "utils"
    stub("omegaconf", DictConfig=dict)
    for name in ("skyrl", "skyrl.backends", "skyrl.backends.skyrl_train", "skyrl.backends.skyrl_train.utils"):
        stub(name)
    tools = definitions(utils / "torch_utils.py", ("masked_mean", "safe_exp_delta"))
    stub("skyrl.backends.skyrl_train.utils.torch_utils", **tools)
    correction = module("skyrl_correction", utils / "off_policy_correction_utils.py")
    text = (base / "train" / "config" / "config.py").read_text()
    config = next(node for node in ast.parse(text).body if getattr(node, "name", "") == "OffPolicyCorrectionConfig")
    assert isinstance(config, ast.ClassDef)
    config.bases = []
    stub("lifted")
    Config = run([config], base, {"dataclass": dataclass, "__name__": "lifted"})["OffPolicyCorrectionConfig"]
    for name, options in {
        "tis_token": {"tis_ratio_type": "token"},
        "tis_sequence": {"tis_ratio_type": "sequence"},
        "geometric": {"sequence_mask_metric": "geometric"},
        "product": {"sequence_mask_metric": "product"},
        "outlier": {"outlier_token_is_threshold_low": 1e-4, "outlier_token_is_threshold_high": 100.0},
    }.items():
        ratio, _, mask = correction.compute_off_policy_correction(
            data.train.float(), data.rollout.float(), data.mask.float(), Config(**options)
        )
        weights = None if ratio is None else (ratio * data.mask).double()
        yield f"skyrl_{name}", (weights, None if name.startswith("tis") else mask)


def areal(site: Path, data: Padded) -> Iterator[tuple[str, Outcome]]:
    """apply_rejection_sampling and the M2PO mask, with its own config class."""
    base = site / "areal"
    for name in ("areal", "areal.api", "areal.utils", "areal.utils.data", "areal.api.cli_args", "lifted"):
        stub(name, torch=torch)
    given = {"dataclass": dataclass, "field": field}
    args = definitions(base / "api" / "cli_args.py", ("RejectionSamplingConfig",), **given)
    stub("areal.api.cli_args", RejectionSamplingConfig=args["RejectionSamplingConfig"])
    kl = definitions(base / "utils" / "data.py", ("KLEstimator",), nn=torch.nn)
    stub("areal.utils.data", KLEstimator=kl["KLEstimator"])
    functional = module("areal_functional", base / "utils" / "functional" / "functional.py")
    for name, options in {
        "ratio_token": {},
        "kl_k1": {"level": "sequence", "metric": "kl_k1"},
        "kl_k2": {"level": "sequence", "metric": "kl_k2"},
        "kl_k3": {"level": "sequence", "metric": "kl_k3"},
    }.items():
        config = args["RejectionSamplingConfig"](**options)
        found = functional.apply_rejection_sampling(data.train, data.rollout, data.mask, None, config)
        # The weight of a token that it masks is not used.
        yield f"areal_{name}", (found.behave_imp_weight.double(), found.loss_mask)
    actor = base / "trainer" / "ppo" / "actor.py"
    masking = definitions(actor, ("_apply_m2po_masking", "_get_m2po_loss_mask"))["_apply_m2po_masking"]
    yield "m2po", (None, masking(data.rollout, data.train, data.mask.bool(), 0.04))


FRAMEWORKS: dict[str, Callable[[Path, Padded], Iterator[tuple[str, Outcome]]]] = {
    "trl": trl,
    "openrlhf": openrlhf,
    "skyrl": skyrl,
    "areal": areal,
}


def compared(name: str, theirs: Outcome, data: Padded) -> tuple[float, int]:
    """The largest relative difference of weights on the tokens kept, and the tokens on which the masks differ."""
    weights, keep = ours(name, data)
    wanted = data.mask if theirs[1] is None else theirs[1].double()
    differ = int(((data.mask if keep is None else keep) != wanted).sum())
    if weights is None or theirs[0] is None:
        if keep is None or theirs[0] is None:
            return 0.0 if weights is theirs[0] else math.inf, differ
        return math.inf, differ
    if keep is not None and theirs[1] is None:  # a mask that shows as weights of 0
        weights, differ = weights * keep, 0
    at = wanted.bool()
    gap = (weights - theirs[0])[at].abs() / theirs[0][at].abs().clamp_min(1e-12)
    return float(gap.max()), differ


def main(site: Path) -> int:
    """Print a line per preset; 1 if any differs."""
    data, bad = golden(), 0
    print(f"{'preset':24}{'weights differ by':>20}{'masks differ on':>18}")
    for framework, outcomes in FRAMEWORKS.items():
        if not (site / framework).is_dir():
            print(f"{framework} is not in {site}: skipped")
            continue
        for name, theirs in outcomes(site, data):
            gap, differ = compared(name, theirs, data)
            print(f"{name:24}{gap:>20.1e}{differ:>18}")
            bad += gap > TOLERANCE.get(framework, 1e-6) or differ > 0
    print("all agree" if not bad else f"{bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
