"""Clear errors for chunks and carries that do not fit a network."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._engine.carry import init_carry
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import LearningRule


def check_chunk(
    network: AbstractNetwork,
    xs: Any,
    ys: Any = None,
    mask: Any = None,
    reset: Any = None,
    *,
    last: bool = False,
) -> None:
    """Raise a clear error for a chunk that does not fit the network; see `gradient`."""
    if not isinstance(network, AbstractNetwork):
        raise TypeError(f"network is a {type(network).__name__}, expected a foretrace.Network")
    for name, value in {"xs": xs, "ys": ys, "mask": mask, "reset": reset}.items():
        if value is not None and not isinstance(value, jax.Array | np.ndarray | np.generic):
            raise TypeError(
                f"{name} is a {type(value).__name__}, expected an array: jnp.asarray({name})"
            )
    shape = np.shape(xs)
    if len(shape) not in (2, 3) or shape[-1] != network.input_size:
        raise ValueError(
            f"xs has shape {shape}, expected (C, {network.input_size}) for one stream or (B, C, "
            f"{network.input_size}) for a batch of streams: time, then the {network.input_size} "
            "inputs of the network"
        )
    if 0 in shape:
        raise ValueError(
            f"xs has shape {shape}: a chunk holds at least one step of at least one stream"
        )
    if not _is_floating(xs):
        raise TypeError(
            f"xs is {_dtype(xs)}, expected floating point; encode symbols first, e.g. "
            f"jax.nn.one_hot(xs, {shape[-1]})"
        )
    front = shape[:-1]
    for name, value in {"ys": ys, "mask": mask, "reset": reset}.items():
        if value is None:
            continue
        have = np.shape(value)
        want = front[:-1] if name == "ys" and last else front
        if have[: len(want)] != want or (name != "ys" and have != want):
            more = " and then the shape of one target" if name == "ys" else ""
            hint = ""
            if name == "ys" and not last and have[: len(front) - 1] == front[:-1]:
                hint = "; one target for each sequence, without an axis of time, needs last=True"
            raise ValueError(
                f"{name} has shape {have}, expected {want}{more}, because xs has shape "
                f"{shape}{hint}"
            )
    if reset is not None and _dtype(reset) != np.bool_:
        raise TypeError(
            f"reset is {_dtype(reset)}, expected booleans: True where an episode starts"
        )
    if mask is not None and not (_dtype(mask) == np.bool_ or _is_floating(mask)):
        raise TypeError(f"mask is {_dtype(mask)}, expected booleans or floating-point weights")
    check_finite("xs", xs)
    check_finite("mask", mask)


def check_loss(loss: Any) -> None:
    """Raise a TypeError if the loss is not callable."""
    if not callable(loss):
        raise TypeError(
            f"loss={loss!r:.80} must be a function loss(output, y) of one step, such as "
            "ft.losses.squared_error"
        )


def check_labels(
    network: AbstractNetwork, loss: Any, xs: Any, ys: Any, mask: Any = None, *, last: bool = False
) -> None:
    """Check the targets that count with the loss's method `check`, if there is one.

    Traced arrays are not checked.

    Raises:
        ValueError: the loss refuses a target, such as a label outside the classes.
    """
    check = getattr(loss, "check", None)
    if check is None or isinstance(ys, jax.core.Tracer) or isinstance(mask, jax.core.Tracer):
        return
    front = np.ndim(xs) - 1 - last
    if last and mask is not None:
        mask = np.any(np.asarray(mask) != 0, axis=-1)
    ys = np.asarray(ys)
    steps = ys.reshape(-1, *ys.shape[front:])
    check(network.output_size, steps if mask is None else steps[np.asarray(mask).reshape(-1) != 0])


def check_carry(network: AbstractNetwork, rule: LearningRule, carry: Carry | None, xs: Any) -> None:
    """Raise an error if a carry does not fit the network, rule and number of streams."""
    if carry is None:
        return
    # Shapes suffice, and they are computed once: tracing would take longer than the call.
    batch = np.shape(xs)[0] if np.ndim(xs) == 3 else None
    leaves, structure = jax.tree.flatten(network)
    shapes = tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    if jax.tree.map(jnp.shape, carry) != _carry_shapes(structure, shapes, rule, batch):
        raise ValueError(
            f"carry does not fit: expected init_carry(network, {rule}, batch_size={batch}) or what "
            "a previous call with the same network, rule and number of streams returned"
        )


@functools.lru_cache(maxsize=64)
def _carry_shapes(
    structure: Any, shapes: tuple[Any, ...], rule: LearningRule, batch: int | None
) -> Any:
    """Return the shapes of `init_carry` for a network of these shapes."""
    network = jax.tree.unflatten(structure, shapes)
    return jax.tree.map(
        jnp.shape, jax.eval_shape(lambda network: init_carry(network, rule, batch), network)
    )


def check_finite(name: str, value: Any) -> None:
    """Raise a ValueError with the place of a NaN or infinity in `value`; traced arrays pass."""
    if value is None or isinstance(value, jax.core.Tracer) or not _is_floating(value):
        return
    # In float64, because NumPy does not know every narrow type.
    finite = np.isfinite(np.asarray(value, dtype=np.float64))
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise ValueError(
            f"{name} holds {np.asarray(value)[where]} at {where} ({(~finite).sum()} values are NaN "
            "or infinite); clean it, or leave the step out with mask and a finite placeholder"
        )


def _is_floating(value: Any) -> bool:
    # NumPy does not know bfloat16 and narrower types, and JAX takes longer to answer.
    dtype = _dtype(value)
    return np.issubdtype(dtype, np.floating) or jnp.issubdtype(dtype, jnp.floating)


def _dtype(value: Any) -> np.dtype:
    return np.dtype(value.dtype) if hasattr(value, "dtype") else np.asarray(value).dtype
