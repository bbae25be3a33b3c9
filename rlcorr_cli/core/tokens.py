"""The valid tokens of a batch on a device, and what every formula shares of them."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcorr_cli.batch import Batch
from rlcorr_cli.core.elementwise import exp, expm1
from rlcorr_cli.core.ragged import Ragged, to_numpy
from rlcorr_cli.core.statistics import EXP_LIMIT
from rlcorr_cli.plans.plan import Gate, Mode, Of
from rlcorr_cli.totals.histogram import Floats


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The valid tokens of B non-empty sequences on a device: rollout_logp b, log_ratio l = a - b; f64[V].

    The training log-probs a are b + l, and not kept.  current_logp is the policy after updates, and current_change what
    it is above a, where the dump has it; advantages, where the plan looks at them.  unscored: bool[V], tokens whose
    rollout_logp is not the engine's: whatever is compared with it has ratio 1 there.  None where there are none.
    """

    ragged: Ragged
    rollout_logp: Tensor
    log_ratio: Tensor
    current_logp: Tensor | None = None
    advantages: Tensor | None = None
    current_change: Tensor | None = None
    unscored: Tensor | None = None

    @classmethod
    def of(cls, batch: Batch, device: torch.device, mode: Mode = "decoupled") -> "Tokens":
        """Put a batch's non-empty rows on a device.  Differences are taken in float64."""
        offsets = batch.offsets[np.concatenate([[True], batch.filled])]
        training_logp, current_logp = trained_policies(batch, mode)
        current = None if current_logp is None else _to_device(current_logp, device)
        rollout, log_ratio = _to_device(batch.rollout_logp, device), _to_device(training_logp, device)
        unscored = None if batch.unscored is None else torch.from_numpy(batch.unscored).to(device)
        if unscored is not None:
            rollout = torch.where(unscored, log_ratio, rollout)
        log_ratio.sub_(rollout)
        advantages = None if batch.advantages is None else _to_device(batch.advantages, device)
        # From a itself: b + (a - b) is not quite a, and a policy that did not move must not seem to.
        change = None if current is None else current - _to_device(training_logp, device)
        return cls(
            ragged=Ragged(offsets, device),
            rollout_logp=rollout,
            log_ratio=log_ratio,
            current_logp=current,
            advantages=advantages,
            current_change=change,
            unscored=unscored,
        )

    def keep(self, mask: Tensor) -> "tuple[Tokens, np.ndarray]":
        """The tokens under a bool [V] mask, and which of the B sequences still have one."""
        ragged, left = self.ragged.keep(mask)
        current = None if self.current_logp is None else self.current_logp[mask]
        rollout, log_ratio = self.rollout_logp[mask], self.log_ratio[mask]
        return Tokens(ragged=ragged, rollout_logp=rollout, log_ratio=log_ratio, current_logp=current), left

    def between(self, of: Of) -> "Tokens":
        """The same tokens with the two policies a record looks at in the place of training and rollout."""
        # In bypass mode there is no third policy, and every pair is the same one.
        if of == "mismatch" or self.current_logp is None:
            return self
        return self._drift if of == "drift" else self._total

    @cached_property
    def _drift(self) -> "Tokens":
        """theta against old."""
        assert self.current_change is not None
        old = self.rollout_logp + self.log_ratio
        return Tokens(ragged=self.ragged, rollout_logp=old, log_ratio=self.current_change, advantages=self.advantages)

    @cached_property
    def _total(self) -> "Tokens":
        """theta against rollout."""
        assert self.current_logp is not None
        change = self.current_logp - self.rollout_logp
        if self.unscored is not None:
            change[self.unscored] = 0
        return Tokens(ragged=self.ragged, rollout_logp=self.rollout_logp, log_ratio=change, advantages=self.advantages)

    def gate_mask(self, gate: Gate, token_scope: bool) -> Tensor | None:
        """Units whose advantage has the gate's sign, bool; a sequence's is the mean of its tokens'.  None: all."""
        if gate == "any":
            return None
        assert self.advantages is not None
        a = self.advantages if token_scope else self.ragged.sum(self.advantages)
        match gate:
            case "positive":
                return a > 0
            case "negative":
                return a < 0
            case "nonpositive":
                return a <= 0
            case "nonnegative":
                return a >= 0

    @cached_property
    def log_ratio_sum(self) -> Tensor:
        """S, [B]."""
        return self.ragged.sum(self.log_ratio)

    @cached_property
    def log_ratio_min(self) -> Tensor:
        """Smallest l of each sequence, [B]."""
        return self.ragged.min(self.log_ratio)

    @cached_property
    def log_ratio_max(self) -> Tensor:
        """Largest l of each sequence, [B]."""
        return self.ragged.max(self.log_ratio)

    @cached_property
    def max_abs(self) -> float:
        """max |l| over all tokens."""
        return max(-self._least, float(self.log_ratio_max.max()))

    @cached_property
    def rho_minus_1(self) -> Tensor:
        """e^l - 1 with full digits near l = 0; inf beyond float64, [V]."""
        return expm1(self.log_ratio)

    @cached_property
    def rho_minus_1_sum(self) -> Tensor:
        """Sum of e^l - 1 over each sequence, [B]."""
        return self.ragged.sum(self.rho_minus_1)

    @cached_property
    def _least(self) -> float:
        """The smallest l of all."""
        return float(self.log_ratio_min.min())

    @cached_property
    def rho(self) -> Tensor:
        """e^l, [V]."""
        return self._rho_of(self.log_ratio, self.rho_minus_1)

    def _rho_of(self, log_ratio: Tensor, rho_minus_1: Tensor) -> Tensor:
        """1 + (rho - 1) keeps 12 digits of rho down to e^-10, and spares an exponential."""
        rho = rho_minus_1 + 1
        if self._least < -10:
            far = log_ratio < -10
            rho[far] = exp(log_ratio[far])
        return rho

    @cached_property
    def rho_min(self) -> Floats:
        """Smallest e^l of each sequence, [B] on the host."""
        return to_numpy(self._rho_of(self.log_ratio_min, expm1(self.log_ratio_min)))

    @cached_property
    def rho_max(self) -> Floats:
        """Largest e^l of each sequence, [B] on the host."""
        return to_numpy(self._rho_of(self.log_ratio_max, expm1(self.log_ratio_max)))

    @cached_property
    def rho_sum(self) -> Tensor:
        """Sum of e^l over each sequence, [B]; from that of e^l - 1 where each rho is, too."""
        return self.ragged.sum(self.rho) if self._least < -10 else self.ragged.lengths + self.rho_minus_1_sum

    @cached_property
    def rho_square_sum(self) -> Floats:
        """Sum of e^2l over each sequence, [B] on the host."""
        return self.ragged.sum_of(torch.square, self.rho)

    @cached_property
    def rho_deviation(self) -> Floats:
        """Sum of (e^l - 1)^2 over each sequence, [B] on the host."""
        return self.ragged.sum_of(torch.square, self.rho_minus_1)

    def rollout_prob(self) -> Tensor:
        """e^b, [V].  Not kept, as little looks at it, and what a batch holds at once says how large it may be."""
        return exp(self.rollout_logp)

    @cached_property
    def prob_gap(self) -> Tensor:
        """e^a - e^b, [V]."""
        return self.prob_gap_of(self.rollout_prob())

    def prob_gap_of(self, p: Tensor) -> Tensor:
        """The same from p = e^b, as p (rho - 1), so that near-equal probabilities keep their digits; [V]."""
        if self.far is None:
            return p * self.rho_minus_1
        return torch.where(self.far, self.train_prob_of(p) - p, p * self.rho_minus_1)

    def train_prob_of(self, p: Tensor) -> Tensor:
        """e^a from p = e^b, [V]; p rho where that holds, which spares an exponential."""
        if self.far is None:
            return p * self.rho
        return torch.where(self.far, exp(self.rollout_logp + self.log_ratio), p * self.rho)

    @cached_property
    def far(self) -> Tensor | None:
        """Tokens whose e^l or its product with e^b float64 cannot hold, |l| > EXP_LIMIT: bool [V]; None without one."""
        return self.log_ratio.abs() > EXP_LIMIT if self.max_abs > EXP_LIMIT else None

    def limited(self, limit: float | None) -> Tensor:
        """l clamped to +-limit (the same tensor where nothing reaches it)."""
        if limit is None or self.max_abs <= limit:
            return self.log_ratio
        return self.log_ratio.clamp(-limit, limit)

    def limited_rho(self, limit: float | None) -> Tensor:
        """e^l of the limited l; the same tensor as rho where nothing reaches the limit."""
        return self.rho if self.max_abs <= (limit or EXP_LIMIT) else exp(self.limited(limit))

    def limited_rho_minus_1(self, limit: float | None) -> Tensor:
        """The same for e^l - 1."""
        return self.rho_minus_1 if self.max_abs <= (limit or EXP_LIMIT) else expm1(self.limited(limit))


def trained_policies(batch: Batch, mode: Mode) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The log-probs that a mode compares with rollout's, and those of the policy after it, where the mode looks there.

    decoupled: old, then current.  bypass: current alone, because rollout stands for the old policy.  A batch with one
    trained policy lends it to either mode.
    """
    old, current = batch.old_logp, batch.current_logp
    if old is None or (mode == "bypass" and current is not None):
        assert current is not None, "a batch has at least one trained policy"
        return current, None
    return old, current


def _to_device(values: np.ndarray, device: torch.device) -> Tensor:
    if device.type == "cpu":
        return torch.from_numpy(values.astype(np.float64))
    # Travel in the dump's own width from pinned memory, widen there.
    pinned = torch.empty(values.shape, dtype=torch.float32 if values.itemsize == 4 else torch.float64, pin_memory=True)
    np.copyto(pinned.numpy(), values)
    return pinned.to(device, non_blocking=True).double()
