"""Checkpoints: safetensors files of named arrays with a digest. They contain data, no code.

    network.blocks.cell.nu_log   (D, N) float32
    opt_state.0.mu.…             …
    carry.h, carry.e…, step, key …
    __extra__                    bytes               JSON: format, version, PRNG implementations,
                                                     and what the caller keeps (position,
                                                     vocabularies, …)

A complex number is stored as a pair of real numbers.

`__extra__` is an array, because safetensors limits its header to 100 MB, but not its arrays. A file
is complete or absent: it is written under a temporary name, synced and renamed.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from safetensors import safe_open
from safetensors.numpy import save as to_bytes

from foretrace._cells.parts import is_key
from foretrace._runs.config_json import from_json, parse
from foretrace._runs.files import write_atomically

FORMAT = 7
_DIGEST = "foretrace"
_EXTRA = "__extra__"


class _Extra(NamedTuple):
    """Values in addition to the arrays."""

    format: int
    version: str
    prng: dict[str, str]
    extra: dict[str, Any]


class HasInit(Protocol):
    """A learner, or any object whose `init` returns a state of the same structure."""

    def init(self) -> Any:
        """Return a state before the first step."""


class CheckpointError(ValueError):
    """A checkpoint cannot be read, or belongs to another learner."""


def save(path: str | os.PathLike[str], state: Any, *, extra: dict[str, Any] | None = None) -> None:
    """Write the state of a learner to a file, atomically.

    Args:
        path: file to write. Its folder must exist. An existing file remains unchanged until the new
            file is complete.
        state: state from `Learner.init` or `Learner.step`. It contains everything that is needed to
            continue exactly.
        extra: values to store in addition to the state, as JSON, such as the position in the data
            or a configuration.

    Raises:
        TypeError: the state is not a tree of arrays, for example because it is the learner itself,
            or `extra` cannot be written as JSON.
        OSError: the folder is missing or not writable, or the path is a folder. An existing file is
            unchanged.

    >>> import foretrace as ft, jax, optax, tempfile, os
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> learner = ft.Learner(
    ...     network, rule="ONLINE", optimizer=optax.sgd(0.1), loss=ft.losses.softmax_cross_entropy
    ... )
    >>> path = os.path.join(tempfile.mkdtemp(), "model.safetensors")
    >>> ft.save(path, learner.init(), extra={"row": 0})
    >>> ft.read_extra(path)
    {'row': 0}
    >>> state = ft.load(path, learner)
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot save to {path}: there is no folder {path.parent}; make it first"
        )
    if path.is_dir():
        raise IsADirectoryError(
            f"cannot save to {path}: it is a folder; give the path of a file in it"
        )
    arrays, keys, leaves = dict[str, np.ndarray](), dict[str, str](), named(state)
    if not leaves or not all(hasattr(leaf, "dtype") for _, leaf in leaves):
        raise TypeError(
            f"state of type {type(state).__name__} is no tree of arrays, expected the state that "
            "Learner.init or Learner.step returns: ft.save(path, state)"
        )
    for name, leaf in leaves:
        if is_key(leaf):
            keys[name] = str(jax.random.key_impl(leaf))
            leaf = jax.random.key_data(leaf)
        array = np.asarray(leaf)
        if np.iscomplexobj(array):
            array = np.stack([array.real, array.imag], axis=-1)
        # safetensors writes other memory orders wrongly, without an error. Arrays without axes must
        # keep their shape.
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    version = importlib.metadata.version("foretrace")
    beside = _Extra(FORMAT, version, keys, {} if extra is None else extra)
    arrays[_EXTRA] = np.frombuffer(json.dumps(beside._asdict()).encode(), np.uint8)
    write_atomically(path, to_bytes(arrays, metadata={_DIGEST: _digest(arrays)}))


def load(path: str | os.PathLike[str], learner: HasInit) -> Any:
    """Read the state of a learner. Training then continues as if it had not stopped.

    Args:
        path: file that `save` wrote.
        learner: learner made like the saved one, with the same network sizes, rule, optimiser and
            number of streams.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: the file is no foretrace checkpoint, is damaged, has a newer format, or
            belongs to another learner. The message names the difference.
        TypeError: `learner` has no `init`, for example because a state was given.
    """
    if not hasattr(learner, "init"):
        raise TypeError(
            f"learner of type {type(learner).__name__} has no init, expected a learner made like "
            "the saved one: state = ft.load(path, learner)"
        )
    beside, arrays = _read(Path(path))
    like = jax.eval_shape(learner.init)
    want = dict(named(like))
    missing, foreign = sorted(set(want) - set(arrays)), sorted(set(arrays) - set(want))
    if missing or foreign:
        raise CheckpointError(
            f"{path} belongs to another learner: it lacks {_some(missing)} and has "
            f"{_some(foreign)} that this learner does not; make the learner with the same network, "
            "rule and optimizer as when it was saved"
        )
    leaves = []
    for name, leaf in want.items():
        # Compared before JAX gets the array, because JAX in 32-bit mode silently converts float64
        # to float32.
        array = arrays[name]
        if jnp.iscomplexobj(leaf) and array.shape[-1:] == (2,):
            pairs, array = array, np.empty(array.shape[:-1], np.result_type(array, 1j))
            array.real, array.imag = pairs[..., 0], pairs[..., 1]
        if name in beside.prng:  # the user may have chosen another kind of key than the default
            with restoring(path):
                array = jax.random.wrap_key_data(jnp.asarray(array), impl=beside.prng[name])
        fits = is_key(array) if is_key(leaf) else array.dtype == leaf.dtype
        if not fits or array.shape != leaf.shape:
            raise _differs(path, name, array, leaf)
        with jax.enable_x64(True):  # parts of a state may be in float64 in any mode
            leaves.append(jnp.asarray(array))
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def read_extra(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the value that was passed to `save` as `extra`.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: as in `load`.
    """
    return _read(Path(path))[0].extra


@contextlib.contextmanager
def restoring(path: str | os.PathLike[str]) -> Iterator[None]:
    """Turn any error in restoring a checkpoint into a `CheckpointError`.

    Raises:
        CheckpointError: a value is missing, or was not written by this program.
    """
    try:
        yield
    except (CheckpointError, OSError):
        raise
    except Exception as error:
        text = f"{type(error).__name__}: {error}" if isinstance(error, LookupError) else str(error)
        raise CheckpointError(
            f"{path} holds values that `foretrace` does not write: {text[:500]}"
        ) from error


def _differs(path: str | os.PathLike[str], name: str, array: Any, leaf: Any) -> CheckpointError:
    wide = array.dtype in (np.float64, np.complex128, np.int64) and not jax.config.read(
        "jax_enable_x64"
    )
    advice = "; it was saved in 64-bit mode: set jax_enable_x64 before the learner is made"
    return CheckpointError(
        f"{path} belongs to another learner: {name} is {array.dtype}{list(array.shape)} in the "
        f"file and {leaf.dtype}{list(leaf.shape)} in the learner{advice if wide else ''}"
    )


def _read(path: Path) -> tuple[_Extra, dict[str, np.ndarray]]:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the path of a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"no checkpoint at {path}")
    try:
        with safe_open(path, framework="np") as file:
            written = (file.metadata() or {}).get(_DIGEST)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # any error of safetensors or NumPy for a damaged file
        raise CheckpointError(f"{path} is not a complete safetensors file ({error})") from error
    if written is None or _EXTRA not in arrays:
        raise CheckpointError(
            f"{path} is a safetensors file, but not one that foretrace.save wrote"
        )
    if written != _digest(arrays):
        raise CheckpointError(
            f"{path} is damaged, or of another version of foretrace: its contents do not match "
            "their digest"
        )
    try:
        data = parse(arrays.pop(_EXTRA).tobytes())
        if data["format"] != FORMAT:
            raise ValueError(
                f"format {str(data['format'])[:40]}, this version of foretrace reads {FORMAT}; it "
                f"was written by foretrace {str(data.get('version'))[:40]}"
            )
        beside = from_json(_Extra, data)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: {_EXTRA} cannot be read ({error})") from error
    return beside, arrays


def named(state: Any) -> list[tuple[str, Any]]:
    """Return the leaves of a state with their names in a file."""
    paths = jax.tree.leaves_with_path(state)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in paths]


def _digest(arrays: dict[str, np.ndarray]) -> str:
    """Return the SHA-256 of all arrays and their names."""
    total = hashlib.sha256()
    for name in sorted(arrays):
        array = arrays[name]
        total.update(f"{name} {array.dtype} {array.shape}".encode())
        # The bytes of the array in memory: other threads can run while they are hashed.
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _some(names: list[str]) -> str:
    if not names:
        return "nothing"
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
