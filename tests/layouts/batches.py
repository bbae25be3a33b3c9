"""Small batches in the frameworks' layouts, put together by hand, with any part replaced by another value."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.layouts.crafted import Call, Name, dumped, ndarray, tensor, torch_bytes

Array = NDArray[Any]
DTYPES = {"f": "float32", "i": "int64", "b": "bool"}
STORAGES = {"f": "Float", "i": "Long", "b": "Bool", "u": "Byte"}
SKYRL = "skyrl.backends.skyrl_train.training_batch"
DATA_PROTO = {"verl": "verl.protocol.DataProto", "roll": "roll.distributed.scheduler.protocol.DataProto"}
NJT = "torch.nested._internal.nested_tensor"


def arrays(n_rows: int = 3, width: int = 5, prompt: int = 2) -> dict[str, Array]:
    """A batch: `tokens` over prompt and response, the others over the response; the last token is of no use."""
    rng = np.random.default_rng(0)
    rollout = -rng.exponential(1, (n_rows, width)).astype(np.float32)
    mask = np.ones((n_rows, width), np.int64)
    mask[:, -1] = 0
    return {
        "tokens": rng.integers(0, 50_000, (n_rows, prompt + width)),
        "attention": np.ones((n_rows, prompt + width), np.int64),
        "mask": mask,
        "rollout": rollout,
        "old": rollout + rng.normal(0, 0.01, (n_rows, width)).astype(np.float32),
        "ref": rollout - np.float32(0.5),
        "advantages": np.ones((n_rows, width), np.float32),
    }


def skyrl_tensors(batch: Mapping[str, Array]) -> dict[str, Array]:
    """SkyRL's names of the tensors."""
    return {
        "sequences": batch["tokens"],
        "response_mask": np.ones_like(batch["mask"]),
        "loss_mask": batch["mask"].astype(np.float32),
        "rollout_logprobs": batch["rollout"],
        "action_log_probs": batch["old"],
        "base_action_log_probs": batch["ref"],
        "advantages": batch["advantages"],
    }


def skyrl(batch: Mapping[str, Array], metadata: Any = None, **fields: Any) -> bytes:
    """A step's file, of the form since 2026-03."""
    state = {
        "batch_dict": {**{name: raw(values) for name, values in skyrl_tensors(batch).items()}, **fields},
        "batch_size": len(batch["mask"]),
        "device": Call("torch.device", ("cpu",)),
        "metadata": {} if metadata is None else metadata,
    }
    return dumped(Call(f"{SKYRL}._rebuild_tensor_batch", (Name(f"{SKYRL}.TrainingInputBatch"), state)))


def raw(values: Array) -> dict[str, Any]:
    """A field as raw bytes."""
    dtype = DTYPES[values.dtype.kind]
    return {"format": "numpy", "data": values.tobytes(), "shape": values.shape, "dtype": dtype}


def verl_tensors(batch: Mapping[str, Array]) -> dict[str, Array]:
    """verl's names of the tensors."""
    return {
        "responses": batch["tokens"][:, -batch["mask"].shape[1] :],
        "response_mask": batch["mask"],
        "attention_mask": batch["attention"],
        "rollout_log_probs": batch["rollout"],
        "old_log_probs": batch["old"],
        "ref_log_prob": batch["ref"],
        "advantages": batch["advantages"],
        "rm_scores": batch["mask"].astype(np.float32),
    }


def verl(tensors: Any, objects: Mapping[str, Any] | None = None, meta: Any = None) -> bytes:
    """A DataProto around its tensors, in one of the forms below."""
    state = (tensors, dict(objects or {}), {"global_steps": 7} if meta is None else meta)
    return dumped(Call(DATA_PROTO["verl"], (), state))


def roll(tensors: Any, objects: Mapping[str, Any] | None = None, meta: Any = None, remote: Any = None) -> bytes:
    """ROLL's DataProto around its tensors, in one of the forms below."""
    buffer = Call("_io.BytesIO", (), (tensors, 0, None))
    state = (buffer, dict(objects or {}), remote, {} if meta is None else meta)
    return dumped(Call(DATA_PROTO["roll"], (), state))


def roll_tensors(batch: Mapping[str, Array]) -> dict[str, Array]:
    """ROLL's names of the tensors, T columns, and T - 1 of log-probs."""
    prompt = batch["tokens"].shape[1] - batch["mask"].shape[1]
    return {
        "input_ids": batch["tokens"],
        "response_mask": np.pad(batch["mask"], ((0, 0), (prompt, 0))).astype(bool),
        "infer_logprobs": np.pad(batch["rollout"], ((0, 0), (prompt - 1, 0))),
    }


def consolidated(tensors: Mapping[str, Array], **leaves: Any) -> bytes:
    """A TensorDict as one tensor of bytes."""
    made: dict[str, Any] = {}
    at = 0
    for name, values in tensors.items():
        dtype = f"torch.{DTYPES[values.dtype.kind]}"
        made[name] = (dtype, list(values.shape), at, at + values.nbytes, 0)
        at += values.nbytes
    meta = {"cls": "TensorDict", "leaves": {**made, **leaves}}
    rebuilt = "tensordict._reductions._rebuild_tensordict_files_consolidated"
    pickled = dumped(Call(rebuilt, (meta, tensor("0", "Byte", (at,)))), 2)
    return torch_bytes(pickled, {"0": b"".join(values.tobytes() for values in tensors.values())})


def in_numpy(tensors: Mapping[str, Array]) -> tuple[Any, ...]:
    """A TensorDict as verl writes it with VERL_DATAPROTO_SERIALIZATION_METHOD=numpy."""
    n_rows = len(next(iter(tensors.values())))
    return (
        (n_rows,),
        None,
        {
            name: (
                DTYPES[values.dtype.kind],
                Call("torch.Size", (values.shape,)),
                ndarray(values.tobytes(), "u1", (values.nbytes,)),
            )
            for name, values in tensors.items()
        },
    )


def plain(tensors: Mapping[str, Array], **fields: Any) -> bytes:
    """A TensorDict of tensors."""
    calls = {
        name: tensor(str(key), STORAGES[values.dtype.kind], values.shape)
        for key, (name, values) in enumerate(tensors.items())
    }
    pickled = dumped(_tensordict({**calls, **fields}), 2)
    return torch_bytes(pickled, {str(key): values.tobytes() for key, values in enumerate(tensors.values())})


def _tensordict(fields: Mapping[str, Any]) -> Call:
    return Call("tensordict._reductions._make_td", (Name("tensordict._td.TensorDict"), {"_tensordict": dict(fields)}))


def verl_tq(tensors: Mapping[str, Array], top: Mapping[str, Any] | None = None, **fields: Any) -> bytes:
    """The skip manager's file, every row as long as another."""
    n_rows = len(next(iter(tensors.values())))
    storages: dict[str, bytes] = {}
    calls: dict[str, Any] = {}
    for name, values in tensors.items():
        offsets = np.arange(n_rows + 1) * values.shape[1]
        key = str(len(storages))
        storages |= {key: values.tobytes(), f"{key}o": offsets.tobytes()}
        parts = {
            "values": tensor(key, STORAGES[values.dtype.kind], (values.size,)),
            "offsets": tensor(f"{key}o", "Long", offsets.shape),
            "lengths": None,
        }
        kinds = (Name(f"{NJT}._rebuild_njt"), Name(f"{NJT}.NestedTensor"))
        calls[name] = Call("torch._tensor._rebuild_from_type_v2", (*kinds, (parts,), {}))
    value = {
        "tensordict": _tensordict({**calls, **fields}),
        "tags": [{"min_global_steps": 6, "max_global_steps": 7}] * n_rows,
        "keys": [f"uid_{row}_0" for row in range(n_rows)],
        "global_steps": 7,
        **(top or {}),
    }
    return torch_bytes(dumped(value, 2), storages)


def stack(values: list[Any]) -> Call:
    """Objects of a TensorDict, one a row, each in its shell."""
    shells = [Call("tensordict.tensorclass.NonTensorData", (), {"non_tensordict": {"data": value}}) for value in values]
    return Call("tensordict.tensorclass.NonTensorStack", (), {"stack_dim": 0, "tensordicts": shells})


def objects(values: list[Any]) -> Call:
    """An array of one object a row."""
    return ndarray(values, "O8", (len(values),))
