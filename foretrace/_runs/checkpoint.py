"""Checkpoints: one safetensors file of named arrays with a JSON header; data only, nothing in it is ever executed.

    network.blocks.cell.nu_log   (D, N) float32          header: format, version, rule, PRNG implementations,
    opt_state.0.mu.…             …                               which arrays are complex, a digest of all bytes,
    carry.h, carry.e…, step, key …                               and what the caller wants to keep (data position, …)

A file is complete or absent: it is written beside its name, synced and renamed.
"""

import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_bytes

from foretrace._runs.files import write_atomically

FORMAT = 1


_HEADER = "foretrace"


class HasInit(Protocol):
    """What a state belongs to: a learner, or anything whose `init` returns such a state."""

    def init(self) -> Any:
        """Return a state before its first step."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, or does not belong to the learner it is loaded for."""


def save(path: str | os.PathLike, state: Any, *, extra: dict[str, Any] | None = None) -> None:
    """Write a learner's state to a file, atomically.

    Args:
        path: the file; its folder must exist. An existing file stays as it was until the new one is complete.
        state: from `Learner.init` or `Learner.step`. It holds all that is needed to go on exactly.
        extra: what else to keep, as JSON: the position in the data, a configuration, …

    Raises:
        TypeError: `extra` cannot be written as JSON.
        OSError: the folder is missing or not writable; the existing file is unharmed.

    >>> import foretrace as ft, jax, optax, tempfile, os
    >>> network = ft.Network(2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0))
    >>> learner = ft.Learner(network, rule="ONLINE", optimizer=optax.sgd(0.1), loss=ft.losses.softmax_cross_entropy)
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> ft.save(path, learner.init(), extra={"row": 0})
    >>> ft.read_extra(path)
    {'row': 0}
    >>> state = ft.load(path, learner)
    """
    path = Path(path)
    arrays, keys, complex_names = {}, {}, []
    for name, leaf in _named(state):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        if np.iscomplexobj(array):
            complex_names.append(name)
            array = np.stack([array.real, array.imag], axis=-1)
        # safetensors writes other memory orders wrongly, without a word; a rank of zero must survive.
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    header = {
        "format": FORMAT,
        "version": importlib.metadata.version("foretrace"),
        "prng": keys,
        "complex": complex_names,
        "sha256": _digest(arrays),
        "extra": {} if extra is None else extra,
    }
    data = to_bytes(arrays, metadata={_HEADER: json.dumps(header)})
    write_atomically(path, data)


def load(path: str | os.PathLike, learner: HasInit) -> Any:
    """Read the state of a learner back; training goes on from it as if it had never stopped.

    Args:
        path: a file that `save` wrote.
        learner: a learner made as the saved one was: same network sizes, rule, optimiser and number of streams.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: not a foretrace checkpoint, damaged, of a newer format, or of another learner; the message
            names what differs.
    """
    header, arrays = _read(Path(path))
    like = jax.eval_shape(learner.init)
    want = dict(_named(like))
    missing, foreign = sorted(set(want) - set(arrays)), sorted(set(arrays) - set(want))
    if missing or foreign:
        raise CheckpointError(
            f"{path} belongs to another learner: it lacks {_some(missing)} and has {_some(foreign)} that this learner "
            "does not; make the learner with the same network, rule and optimizer as when it was saved"
        )
    leaves = []
    for name, leaf in want.items():
        array = jnp.asarray(arrays[name])
        key = name in header["prng"]
        if key:
            array = jax.random.wrap_key_data(array, impl=header["prng"][name])
        # The user may have chosen another kind of PRNG key than the default.
        if array.shape != leaf.shape or (array.dtype != leaf.dtype and not key):
            raise CheckpointError(
                f"{path} belongs to another learner: {name} is {array.dtype}{list(array.shape)} in the file and "
                f"{leaf.dtype}{list(leaf.shape)} in the learner"
            )
        leaves.append(array)
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_extra(path: str | os.PathLike) -> dict[str, Any]:
    """Return what `save` was given as `extra`.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: as in `load`.
    """
    return _read(Path(path))[0]["extra"]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="np") as file:
            text = (file.metadata() or {}).get(_HEADER)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from error
    if text is None:
        raise CheckpointError(f"{path} is a safetensors file, but not one that foretrace.save wrote")
    header = _parse(path, text)
    if _digest(arrays) != header["sha256"]:
        raise CheckpointError(f"{path} is damaged: its contents do not match their digest")
    for name in header["complex"]:
        pair = arrays[name]
        arrays[name] = np.ascontiguousarray(pair).view(np.result_type(pair.dtype, np.complex64))[..., 0]
    return header, arrays


def _parse(path: Path, text: str) -> dict[str, Any]:
    try:
        header = json.loads(text)
        number = header["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} has a header that cannot be read") from error
    if number != FORMAT:
        raise CheckpointError(
            f"{path} has format {number}, this version of foretrace reads {FORMAT}; "
            f"it was written by foretrace {header.get('version')}"
        )
    if not {"prng", "complex", "sha256", "extra"} <= set(header):
        raise CheckpointError(f"{path} has an incomplete header")
    return header


def _named(state: Any) -> list[tuple[str, Any]]:
    paths = jax.tree.leaves_with_path(state)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in paths]


def _digest(arrays: dict[str, np.ndarray]) -> str:
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
