"""The central abstraction: a recurrent layer is its one-step recurrence, written once.

`foretrace._recurrence.unroll` adds the axis of time, `vmap` the axis of streams, and automatic
differentiation computes the derivatives. No other part of the package knows which architecture it
runs.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, NamedTuple, Self

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp

from foretrace._types import Array, Float, Inexact, Pair, PRNGKeyArray, State


class Coefficients(NamedTuple):
    """The coefficients `theta` of a recurrence, computed from the stored parameters.

    Every leaf has the module axis N in front: the entry `[n, ...]` acts only on module n. If all
    modules share a parameter, `AbstractCell.coefficients` broadcasts it to (N,). Automatic
    differentiation then sums its gradient over the modules.

    Args:
        recurrent: coefficients that act on the past (λ, A, …).
        feedforward: coefficients that act on the input (γB, biases, …).
    """

    recurrent: dict[str, Inexact[Array, "N ..."]]
    feedforward: dict[str, Inexact[Array, "N ..."]]


class AbstractCell(eqx.Module):
    """Layer of N recurrent modules, defined by one step and one readout.

    `h_t = step(theta, own, others, x_t)`, `y_t = readout(h_t, x_t)`.

    A subclass is an Equinox module with the fields `input_size` and `state_size` and the methods
    `coefficients` and `step`. It also defines `init_state` if the state of a module has more than
    one real number, and `readout` if the output is not the state itself. Check a new cell with
    `foretrace.testing.check_cell`.
    """

    input_size: eqx.AbstractVar[int]
    state_size: eqx.AbstractVar[int]

    slow_parameters: ClassVar[tuple[str, ...]] = ()
    """Fields that `foretrace.adamw` trains at `learning_rate * recurrent_factor`, without decay."""

    module_readout: ClassVar[tuple[str, ...]] = ()
    """Fields that only the readout uses, and whose entry `[n, ...]` belongs to module n."""

    @property
    def output_size(self) -> int:
        """Number of features that `readout` returns."""
        return eqx.filter_eval_shape(_readout, self).size

    @property
    def independent(self) -> bool:
        """Whether the modules are independent, that is, `step` does not read `others` at all."""
        return not _reads_others(self)

    @classmethod
    def factory(cls, **options: Any) -> Callable[..., Self]:
        """Return `make(input_size, *, key)`, which a network calls to build this cell.

        >>> import foretrace as ft, jax
        >>> make = ft.LRU.factory(state_size=4)
        >>> make(3, key=jax.random.key(0)).state_size
        4
        """
        return partial(_make, cls, options)  # a nested function could not be pickled

    @abc.abstractmethod
    def coefficients(self) -> Coefficients:
        """Compute the coefficients of the recurrence from the stored (real) parameters."""

    def init_state(self) -> State:
        """Return the state before the first step: a tree with a leaf `(N,)` per state dimension.

        Default: one real state dimension, zero.
        """
        return jnp.zeros(self.state_size, jax.tree.leaves(self)[0].dtype)

    @abc.abstractmethod
    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "I"]) -> State:
        """Advance all modules by one step.

        Args:
            theta: coefficients, as returned by `coefficients`.
            own: previous state, to be read where a module uses its own past.
            others: the same previous state, to be read where module n looks at module m. Write a
                dense product as `w @ others + diag(w) * (own - others)`.
            x: input of this step.
        """

    def readout(self, h: State, x: Float[Array, "I"]) -> Float[Array, "H"]:
        """Return the output of one step. Default: the first leaf of the state."""
        return jax.tree.leaves(h)[0]


def _make(cell: Callable[..., Any], options: Any, input_size: int, *, key: PRNGKeyArray) -> Any:
    return cell(input_size=input_size, key=key, **options)


class AbstractDiagonalCell(AbstractCell):
    """Layer of independent modules with the linear recurrence `h_t = a_t * h_{t-1} + b_t`.

    `decay_and_drive` replaces `step`. Because (a_t, b_t) do not depend on the state, a whole chunk
    needs only one product with its inputs and one linear scan.
    """

    @abc.abstractmethod
    def decay_and_drive(self, theta: Coefficients, x: Float[Array, "I"]) -> Pair:
        """Return the decay a_t and the drive b_t of one step.

        If a_t does not depend on x, all steps share one array.
        """

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "I"]) -> State:
        """Advance by one step, `a * own + b`; `others` is not read."""
        a, b = self.decay_and_drive(theta, x)
        return a * own + b


def check_interface(cell: AbstractCell) -> None:
    """Raise an error if a cell's shapes or dtypes break the contract that sensitivities rely on.

    Raises:
        TypeError: the coefficients are not `Coefficients`, or are real where the state is complex.
        ValueError: a leaf has no module axis in front, or the step changes the structure of the
            state.
    """
    name, n = type(cell).__name__, cell.state_size
    theta, h, x = shapes(cell)
    if not isinstance(theta, Coefficients):
        raise TypeError(
            f"{name}.coefficients() returned {type(theta).__name__}, expected "
            "foretrace.Coefficients"
        )
    for path, leaf in jax.tree.leaves_with_path(h):
        if leaf.shape != (n,):
            raise ValueError(
                f"{name}.init_state(){jax.tree_util.keystr(path)} has shape {leaf.shape}, expected "
                f"({n},): one leaf for each state dimension of a module"
            )
    is_complex = any(jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in jax.tree.leaves(h))
    for path, leaf in jax.tree.leaves_with_path(theta):
        where = f"{name}.coefficients(){jax.tree_util.keystr(path)}"
        if not leaf.shape or leaf.shape[0] != n:
            raise ValueError(
                f"{where} has shape {leaf.shape}, expected the module axis ({n}) in front; "
                "broadcast what all modules share"
            )
        if is_complex and not jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            raise TypeError(
                f"{where} is {leaf.dtype} but the state is complex: its sensitivity would lose the "
                "imaginary part; fold it into a complex coefficient or cast it to complex"
            )
    after = eqx.filter_eval_shape(
        lambda cell, *arguments: cell.step(*arguments), cell, theta, h, h, x
    )
    if jax.tree.structure(after) != jax.tree.structure(h) or not all(
        p.shape == q.shape and p.dtype == q.dtype
        for p, q in zip(jax.tree.leaves(after), jax.tree.leaves(h), strict=True)
    ):
        raise ValueError(
            f"{name}.step returned {after}, expected the structure, shapes and dtypes of "
            f"init_state: {h}"
        )


def read_by_coefficients(cell: AbstractCell) -> list[bool]:
    """Return, for each parameter of a cell, whether the coefficients are computed from it."""
    jaxpr = jax.make_jaxpr(lambda cell: jax.tree.leaves(cell.coefficients()))(cell).jaxpr
    used = [v for equation in jaxpr.eqns for v in equation.invars] + list(jaxpr.outvars)
    read = {v for v in used if isinstance(v, jax.extend.core.Var)}
    return [v in read for v in jaxpr.invars]


def marked(cell: Any, kind: str) -> set[str]:
    """Return the paths of a cell's parameters that are of a kind, including those of cells in it.

    Args:
        cell: the cell. Any other object has no such parameters.
        kind: `slow_parameters` or `module_readout`.
    """
    found = {f".{name}" for name in getattr(cell, kind, ())}
    parts = jax.tree.leaves_with_path(
        cell, is_leaf=lambda node: node is not cell and isinstance(node, AbstractCell)
    )
    for path, part in parts:
        if isinstance(part, AbstractCell):
            found |= {jax.tree_util.keystr(path) + name for name in marked(part, kind)}
    return found


def _readout(cell: AbstractCell) -> Array:
    return cell.readout(cell.init_state(), jnp.zeros(cell.input_size))


def shapes(cell: AbstractCell) -> tuple[Any, Any, Any]:
    """Return the shapes of coefficients, state and input. The cell may consist of shapes only."""

    def parts(cell: AbstractCell) -> tuple[Any, Any, Any]:
        return cell.coefficients(), cell.init_state(), jnp.zeros(cell.input_size)

    return eqx.filter_eval_shape(parts, cell)


def _reads_others(cell: AbstractCell) -> bool:
    theta, h, x = shapes(cell)
    jaxpr = jax.make_jaxpr(cell.step)(theta, h, h, x).jaxpr
    first = len(jax.tree.leaves((theta, h)))
    others = set(jaxpr.invars[first : first + len(jax.tree.leaves(h))])
    read = [v for eqn in jaxpr.eqns for v in eqn.invars] + list(jaxpr.outvars)
    return any(isinstance(v, jax.extend.core.Var) and v in others for v in read)
