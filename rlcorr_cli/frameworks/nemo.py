"""NeMo-RL: the importance sampling keys of loss_fn, and grpo.seq_logprob_error_threshold.

Weights are e^(prev - generation), not limited; at sequence level the product.  Its nan_to_num makes those that are
infinite in float32 0 before they are bounded.  What its loss refuses at construction is refused here.
"""

from rlcorr_cli.errors import UsageError
from rlcorr_cli.frameworks.config import Config, choice, contradiction, flag, positive
from rlcorr_cli.frameworks.peer import Peer
from rlcorr_cli.plans.plan import Bounds, Plan, Rejection, Weighting

_CORRECTION = "use_importance_sampling_correction"
_TYPE = "truncated_importance_sampling_type"
_RATIO = "truncated_importance_sampling_ratio"
_MIN = "truncated_importance_sampling_ratio_min"
_SEQUENCE = "sequence_level_importance_ratios"
_ERROR = "seq_logprob_error_threshold"


def _read(config: Config) -> Plan:
    kind = choice(config, _TYPE, ("tis", "icepop", "seq-mask-tis"))
    high, low = positive(config, _RATIO), positive(config, _MIN)
    _check(config, kind, high, low)
    rejections: list[Rejection] = []
    weighting = None
    if flag(config, _CORRECTION):
        scope = "sequence" if flag(config, _SEQUENCE) else "token"
        bounds = Bounds(low, high)
        weighting = {
            None: Weighting(scope, infinite="zero"),
            "tis": Weighting(scope, bounds, infinite="zero"),
            "icepop": Weighting(scope, bounds, "zero"),
            "seq-mask-tis": Weighting(scope, infinite="zero"),
        }[kind]
        if kind == "seq-mask-tis":
            rejections.append(Rejection("ratio", "seq_mean", bounds, "geometric"))
    threshold = positive(config, _ERROR)
    if threshold is not None:
        rejections.append(Rejection("exp_abs_log_ratio", "seq_mean", Bounds(None, threshold)))
    return Plan("nemo-rl", weighting, tuple(rejections), log_ratio_limit=None)


def _check(config: Config, kind: str | None, high: float | None, low: float | None) -> None:
    if kind is None:
        for key, value in ((_RATIO, high), (_MIN, low)):
            if value is not None:
                raise UsageError(f"{key} says nothing without {_TYPE}.", f"Set {_TYPE}: tis, icepop or seq-mask-tis.")
        return
    if not flag(config, _CORRECTION):
        raise contradiction(f"{_TYPE}: {kind}", f"{_CORRECTION}: false", f"Set {_CORRECTION}: true.")
    if high is None:
        raise UsageError(f"{_TYPE}: {kind} needs {_RATIO}.", f"For example {_RATIO}: 2.0.")
    if low is None and kind != "tis":
        raise UsageError(f"{_TYPE}: {kind} needs {_MIN}.", f"For example {_MIN}: 0.5.")
    if kind == "seq-mask-tis" and flag(config, _SEQUENCE):
        raise contradiction(f"{_TYPE}: {kind}", f"{_SEQUENCE}: true", "seq-mask-tis weighs tokens.")


NEMO = Peer(
    name="NeMo-RL",
    keys=(_CORRECTION, _TYPE, _RATIO, _MIN, _SEQUENCE, _ERROR),
    blocks=(("loss_fn",), ("grpo",)),
    read=_read,
)
