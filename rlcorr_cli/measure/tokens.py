"""The valid tokens of a batch on a device, and what every formula shares of them."""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rlcorr_cli.frozen import frozen
from rlcorr_cli.measure.arrays import EXP_LIMIT, Array, Device, Segments
from rlcorr_cli.plans.plan import Gate, Mode, Of
from rlcorr_cli.reading.batch import Batch
from rlcorr_cli.totals.flat import Flags, Floats


@frozen(kw_only=True)
class Tokens:
    """The valid tokens of B non-empty sequences: rollout_logp b, log_ratio l = a - b; f64[V] on the rows' device.

    The training log-probs a are b + l, and not kept.  current_logp is the policy after updates, and current_change what
    it is above a, where the dump has it; advantages, where the plan looks at them.  unscored: bool[V], tokens whose
    rollout_logp is not the engine's: whatever is compared with it has ratio 1 there.  None where there are none.
    are_float32: whether both log-probs are numbers of float32, which are then equal where l is 0.

    What is of every token ([V]) is an array of the device, what is of every sequence ([B]) is NumPy's.
    """

    rows: Segments
    rollout_logp: Array
    log_ratio: Array
    current_logp: Array | None = None
    advantages: Array | None = None
    current_change: Array | None = None
    unscored: Array | None = None
    are_float32: bool = False

    @classmethod
    def of(cls, batch: Batch, device: Device, mode: Mode = "decoupled") -> "Tokens":
        """Put a batch's non-empty rows on a device.  Differences are taken in float64."""
        offsets = batch.offsets[np.concatenate([[True], batch.filled])]
        training_logp, current_logp = trained_policies(batch, mode)
        train, rollout = device.floats(training_logp), device.floats(batch.rollout_logp)
        unscored = None if batch.unscored is None else device.put(batch.unscored)
        if unscored is not None:
            rollout = device.xp.where(unscored, train, rollout)
        current = None if current_logp is None else device.floats(current_logp)
        are_float32 = training_logp.dtype == batch.rollout_logp.dtype == np.float32
        return cls(
            rows=Segments(offsets, device),
            rollout_logp=rollout,
            log_ratio=train - rollout,
            current_logp=current,
            advantages=None if batch.advantages is None else device.floats(batch.advantages),
            # From a itself: b + (a - b) is not quite a, and a policy that did not move must not seem to.
            current_change=None if current is None else current - train,
            unscored=unscored,
            are_float32=are_float32,
        )

    @property
    def xp(self) -> Any:
        """The namespace of what is of every token."""
        return self.rows.device.xp

    def keep(self, mask: Array) -> "tuple[Tokens, Flags]":
        """The tokens under a bool [V] mask, and which of the B sequences still have one."""
        rows, left = self.rows.keep(mask)
        current = None if self.current_logp is None else self.current_logp[mask]
        kept = Tokens(
            rows=rows,
            rollout_logp=self.rollout_logp[mask],
            log_ratio=self.log_ratio[mask],
            current_logp=current,
            are_float32=self.are_float32,
        )
        return kept, left

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
        return Tokens(rows=self.rows, rollout_logp=old, log_ratio=self.current_change, advantages=self.advantages)

    @cached_property
    def _total(self) -> "Tokens":
        """theta against rollout."""
        assert self.current_logp is not None
        change = self.current_logp - self.rollout_logp
        if self.unscored is not None:
            change[self.unscored] = 0
        return Tokens(rows=self.rows, rollout_logp=self.rollout_logp, log_ratio=change, advantages=self.advantages)

    def limited_first(self, limit: float | None) -> "Tokens":
        """The same tokens with every log-ratio within +-limit (these themselves where nothing reaches it)."""
        if limit is None or self.max_abs <= limit:
            return self
        return Tokens(
            rows=self.rows, rollout_logp=self.rollout_logp, log_ratio=self.limited(limit), advantages=self.advantages
        )

    def gate_mask(self, gate: Gate, token_scope: bool) -> Array | None:
        """Units whose advantage has the gate's sign, bool; a sequence's is the mean of its tokens'.  None: all."""
        if gate == "any":
            return None
        assert self.advantages is not None
        a = self.advantages if token_scope else self.rows.sum(self.advantages)
        match gate:
            case "positive":
                return a > 0
            case "negative":
                return a < 0
            case "nonpositive":
                return a <= 0
            case "nonnegative":
                return a >= 0
            case "onward":
                return self.log_ratio * a > 0

    @cached_property
    def log_ratio_sum(self) -> Floats:
        """S, [B]."""
        return self.rows.sum(self.log_ratio)

    @cached_property
    def log_ratio_min(self) -> Floats:
        """Smallest l of each sequence, [B]."""
        return self.rows.min(self.log_ratio)

    @cached_property
    def log_ratio_max(self) -> Floats:
        """Largest l of each sequence, [B]."""
        return self.rows.max(self.log_ratio)

    @cached_property
    def max_abs(self) -> float:
        """max |l| over all tokens."""
        return max(-self._least, float(self.log_ratio_max.max(initial=0.0)))

    @cached_property
    def _least(self) -> float:
        """The smallest l of all."""
        return float(self.log_ratio_min.min(initial=0.0))

    @cached_property
    def rho_minus_1(self) -> Array:
        """E = e^l - 1 with full digits near l = 0; inf beyond float64, [V]."""
        return self.xp.expm1(self.log_ratio)

    @cached_property
    def rho(self) -> Array:
        """e^l, [V]: 1 + E keeps 12 digits of it down to e^-10, and spares an exponential."""
        rho = self.rho_minus_1 + 1
        if self._least < -10:
            far = self.log_ratio < -10
            rho[far] = self.xp.exp(self.log_ratio[far])
        return rho

    @cached_property
    def rho_minus_1_sum(self) -> Floats:
        """Sum of E over each sequence, [B]."""
        return self.rows.sum(self.rho_minus_1)

    @cached_property
    def rho_sum(self) -> Floats:
        """Sum of e^l over each sequence, [B]; from that of E where each rho is, too."""
        return self.rows.sum(self.rho) if self._least < -10 else self.rows.sizes + self.rho_minus_1_sum

    @cached_property
    def rho_square_sum(self) -> Floats:
        """Sum of e^2l over each sequence, [B]."""
        return self.rows.sum(self.rho * self.rho)

    @cached_property
    def rho_deviation(self) -> Floats:
        """Sum of E^2 = (e^l - 1)^2 over each sequence, [B]."""
        return self.rows.sum(self.rho_minus_1 * self.rho_minus_1)

    @cached_property
    def inverse(self) -> Array:
        """e^-l, [V]."""
        return 1 / self.rho if self.out_of_float_range is None else self.xp.exp(-self.log_ratio)

    @cached_property
    def rho_minus_1_over_rho(self) -> Array:
        """E / rho = 1 - e^-l, [V]."""
        return self.inverse * self.rho_minus_1 if self.out_of_float_range is None else -self.xp.expm1(-self.log_ratio)

    @cached_property
    def rollout_prob(self) -> Array:
        """p = e^b, [V]."""
        return self.xp.exp(self.rollout_logp)

    @cached_property
    def train_prob(self) -> Array:
        """q = e^a, [V]; p rho where that holds, which spares an exponential."""
        if self.out_of_float_range is None:
            return self.rollout_prob * self.rho
        return self.xp.where(
            self.out_of_float_range, self.xp.exp(self.rollout_logp + self.log_ratio), self.rollout_prob * self.rho
        )

    @cached_property
    def prob_gap(self) -> Array:
        """q - p, [V], as p E, so that near-equal probabilities keep their digits."""
        if self.out_of_float_range is None:
            return self.rollout_prob * self.rho_minus_1
        return self.xp.where(
            self.out_of_float_range, self.train_prob - self.rollout_prob, self.rollout_prob * self.rho_minus_1
        )

    @cached_property
    def abs_prob_gap(self) -> Array:
        """|q - p|, [V]."""
        return abs(self.prob_gap)

    @cached_property
    def out_of_float_range(self) -> Array | None:
        """Tokens whose e^l or its product with e^b float64 cannot hold, |l| > EXP_LIMIT: bool [V]; None without one."""
        return abs(self.log_ratio) > EXP_LIMIT if self.max_abs > EXP_LIMIT else None

    def limited(self, limit: float | None) -> Array:
        """l clamped to +-limit (the same array where nothing reaches it)."""
        if limit is None or self.max_abs <= limit:
            return self.log_ratio
        return self.xp.clip(self.log_ratio, -limit, limit)

    def limited_rho(self, limit: float | None) -> Array:
        """e^l of the limited l; the same array as rho where nothing reaches the limit."""
        return self.rho if self.max_abs <= (limit or EXP_LIMIT) else self.xp.exp(self.limited(limit))

    def limited_rho_minus_1(self, limit: float | None) -> Array:
        """The same for e^l - 1."""
        return self.rho_minus_1 if self.max_abs <= (limit or EXP_LIMIT) else self.xp.expm1(self.limited(limit))


def exp_as_rho(log_ratio: Floats) -> Floats:
    """e^l by the same steps as `Tokens.rho`, so that an extreme is that of the very same numbers."""
    return np.where(log_ratio < -10, np.exp(log_ratio), np.expm1(log_ratio) + 1)


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
