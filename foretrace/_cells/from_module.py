"""A recurrent module of another library as a cell."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.parts import check_sizes
from foretrace._types import Array, Float, PRNGKeyArray, State

Call = Callable[[Any, State, Float[Array, "I"]], State]
"""Function `call(module, h, x)` that returns the next state."""


def _make(
    cell: Callable[..., Any], module: Any, options: Any, input_size: int, *, key: PRNGKeyArray
) -> Any:
    return cell(module(input_size, key=key), input_size=input_size, **options)


class FromModule(AbstractCell):
    r"""Recurrent module of another library as a cell of N units.

    `h_t = call(module, h_{t-1}, x_t)`.

    The module is any tree whose leaves are real parameters, such as an Equinox module or the
    variables of a Flax module. The module is not rewritten, and every equality of the rules holds:

    - A module is *elementwise* if no unit's next state depends on another unit's state. Its units
      are then independent, and `ONLINE` is exact. Any other module is dense: `SNAP1` approximates
      its gradient, and `RTRL` is exact.
    - A parameter is *split* if there is an axis along which each entry acts on only one unit. The
      length of this axis is N, or a multiple of N if gates are stacked. The sensitivity then has
      one element for each entry of the parameter, as in a cell written for foretrace. If a
      parameter is not split, each unit carries a sensitivity to the whole parameter. This is exact,
      but needs N times as many elements.

    Both properties are determined when the cell is made, from the exact zeros of the module's
    derivative at three random points. They may be wrong for a module that computes differently at
    other points; `foretrace.testing.check_cell` then reports an error.

    If a module is dense or has parameters that are not split, it is evaluated N times at each step,
    once for the past of every unit. For large layers, write a cell class (docs/extending.md)
    instead of wrapping the module.

    Args:
        module: recurrent module. Its floating-point arrays are the parameters; numbers and
            functions in the module are constants.
        call: function `call(module, h, x)` that returns the next state. Use the same function
            object for equal cells, because a new one is compiled again.
        input_size: number of inputs.
        state_size: number of units, N.
        state_dims: number of state dimensions of a unit. With 1 (default), the state is an
            array (N,). With a larger number, the state is a tuple of such arrays, and the first
            array is the output. The state begins at zero.
        feedforward: parameters that do not act on the past, given as full names or as one
            dot-separated part of a name. Only `SPATIAL` and `TRUNCATED` use them. Default: none.

    Raises:
        TypeError: an array in the module does not hold real floating-point numbers.
        ValueError: a size is below one, the state has other shapes than given, or a name in
            `feedforward` is unknown.

    >>> import equinox as eqx, foretrace as ft, jax
    >>> gru = eqx.nn.GRUCell(3, 4, key=jax.random.key(0))
    >>> cell = ft.FromModule(gru, lambda gru, h, x: gru(x, h), input_size=3, state_size=4)
    >>> cell.coefficients().recurrent[
    ...     "weight_hh"
    ... ].shape  # 3 gates of 4 units with 4 weights each, units in front
    (4, 3, 4)
    """

    parameters: dict[str, Float[Array, "..."]]
    call: Call = eqx.field(static=True)
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)
    state_dims: int = eqx.field(static=True)
    feedforward: frozenset[str] = eqx.field(static=True)
    elementwise: bool = eqx.field(static=True)
    axes: tuple[tuple[str, int], ...] = eqx.field(static=True)
    rest: tuple[Any, ...] = eqx.field(static=True)
    structure: Any = eqx.field(static=True)

    def __init__(
        self,
        module: Any,
        call: Call,
        *,
        input_size: int,
        state_size: int,
        state_dims: int = 1,
        feedforward: tuple[str, ...] = (),
    ):
        check_sizes(
            "FromModule", input_size=input_size, state_size=state_size, state_dims=state_dims
        )
        self.call, self.input_size, self.state_size, self.state_dims = (
            call,
            input_size,
            state_size,
            state_dims,
        )
        self.structure = jax.tree.structure(module)
        leaves = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(module)}
        arrays = {
            name: leaf for name, leaf in leaves.items() if isinstance(leaf, jax.Array | np.ndarray)
        }
        self.parameters = {name: jnp.asarray(leaf) for name, leaf in arrays.items()}
        self.rest = tuple(
            (name, leaf if name not in self.parameters else None) for name, leaf in leaves.items()
        )
        for name, leaf in self.parameters.items():
            if not jnp.issubdtype(leaf.dtype, jnp.floating):
                raise TypeError(
                    f"FromModule: {name} of the module is {leaf.dtype}, but parameters are real "
                    "floating-point arrays; leave out what is no parameter (with Flax nnx: "
                    "`nnx.split(module, nnx.Param, ...)`)"
                )
        named = {name for name in self.parameters if set(feedforward) & {name, *name.split(".")}}
        for part in feedforward:
            if not any(part in (name, *name.split(".")) for name in named):
                raise ValueError(
                    f"FromModule(feedforward={feedforward}): no {part!r} among {', '.join(leaves)}"
                )
        self.feedforward = frozenset(named)
        self._check_state()
        self.elementwise, self.axes = _structure_of(self)

    @classmethod
    def factory(cls, **options: Any) -> Callable[..., Self]:
        """Return `make(input_size, *, key)`.

        The option `module` is a function `make_module(input_size, *, key)` that makes the module.

        >>> import equinox as eqx, foretrace as ft, jax
        >>> def make_gru(input_size, *, key):
        ...     return eqx.nn.GRUCell(input_size, 8, key=key)
        >>> make = ft.FromModule.factory(
        ...     module=make_gru, call=lambda gru, h, x: gru(x, h), state_size=8
        ... )
        >>> make(8, key=jax.random.key(0)).output_size
        8
        """
        options = dict(options)
        return partial(_make, cls, options.pop("module"), options)

    def coefficients(self) -> Coefficients:
        """Return the parameters with the unit axis in front.

        Parameters that are split among the units are only reshaped; others are copied for each.
        """
        axes, n = dict(self.axes), self.state_size

        def by_unit(name: str, leaf: Array) -> Array:
            if name not in axes:
                return jnp.broadcast_to(leaf, (n, *leaf.shape))
            a = axes[name]
            return jnp.moveaxis(
                leaf.reshape(*leaf.shape[:a], -1, n, *leaf.shape[a + 1 :]), a + 1, 0
            )

        found = {name: by_unit(name, leaf) for name, leaf in self.parameters.items()}
        groups = (
            {k: v for k, v in found.items() if (k in self.feedforward) == feed}
            for feed in (False, True)
        )
        return Coefficients(*groups)

    def init_state(self) -> State:
        """Return the zero state."""
        zeros = jnp.zeros(self.state_size, jnp.result_type(*self.parameters.values()))
        return zeros if self.state_dims == 1 else (zeros,) * self.state_dims

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "I"]) -> State:
        """Advance by one step; unit n reads its own coefficients and past, and the others' past."""
        axes, units = dict(self.axes), jnp.arange(self.state_size)
        theta_by_name = theta.recurrent | theta.feedforward
        copies = {name: leaf for name, leaf in theta_by_name.items() if name not in axes}
        split = {
            name: self._joined(leaf, axes[name])
            for name, leaf in theta_by_name.items()
            if name in axes
        }
        if self.elementwise and not copies:
            return self._call(split, own, x)

        def unit(n: Array, copy: dict[str, Array]) -> Any:
            before = own
            if not self.elementwise:
                before = optax.tree.where(units == n, own, others)
            return jax.tree.map(lambda leaf: leaf[n], self._call(split | copy, before, x))

        return jax.vmap(unit)(units, copies)

    def _joined(self, leaf: Array, axis: int) -> Array:
        """Return a split parameter in the shape that the module expects."""
        leaf = jnp.moveaxis(leaf, 0, axis + 1)
        return leaf.reshape(*leaf.shape[:axis], -1, *leaf.shape[axis + 2 :])

    def _call(self, parameters: dict[str, Array], h: State, x: Float[Array, "I"]) -> State:
        leaves = [parameters.get(name, leaf) for name, leaf in self.rest]
        return self.call(jax.tree.unflatten(self.structure, leaves), h, x)

    def _check_state(self) -> None:
        h, x = _state_and_input(self)
        want = (
            f"it must return the next state, of the structure, shapes and dtype of {h}; "
            f"state_size is {self.state_size}, state_dims {self.state_dims}, input_size "
            f"{self.input_size}"
        )
        try:
            after = eqx.filter_eval_shape(self._call, self.parameters, h, x)
        except (TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"FromModule(call=…) failed: {want}. The module said: {error}"
            ) from error
        if jax.tree.structure(after) != jax.tree.structure(h) or jax.tree.leaves(
            after
        ) != jax.tree.leaves(h):
            raise ValueError(f"FromModule(call=…) returned {after}: {want}")


def _state_and_input(cell: FromModule) -> tuple[Any, Any]:
    """Return the shapes of state and input, with the dtype of the parameters."""
    h = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), cell.init_state())
    return h, jax.ShapeDtypeStruct((cell.input_size,), jax.tree.leaves(h)[0].dtype)


def _structure_of(cell: FromModule) -> tuple[bool, tuple[tuple[str, int], ...]]:
    """Return whether a module is elementwise, and the axis along which each parameter is split."""
    random, n = np.random.default_rng(0), cell.state_size
    state, x = _state_and_input(cell)

    def draw(leaf: Any) -> Array:
        # Small values for any fan-in, because a saturated tanh has a derivative of exactly zero.
        return jnp.asarray(
            random.normal(size=(3, *leaf.shape)) / max((1, *leaf.shape)) ** 0.5, leaf.dtype
        )

    def touched(parameters: dict[str, Array], h: State, x: Array, weights: Array) -> tuple:
        """Return for each unit the states and parameter entries that its next state depends on."""

        def mixed(parameters: dict[str, Array], h: State) -> Array:
            after = jax.tree.leaves(cell._call(parameters, h, x))
            return sum(w * leaf for w, leaf in zip(weights, after, strict=True))

        _, pull = jax.vjp(mixed, parameters, h)

        def one(cotangent: Array) -> tuple:
            by_parameter, by_state = pull(cotangent)
            along = {
                name: [_any_but(g, axis) for axis in range(g.ndim)]
                for name, g in by_parameter.items()
            }
            return jnp.any(jnp.stack(jax.tree.leaves(by_state)) != 0, axis=0), along

        return lax.map(one, jnp.eye(n, dtype=weights.dtype))

    weights = jax.ShapeDtypeStruct((cell.state_dims,), jax.tree.leaves(state)[0].dtype)
    with jax.ensure_compile_time_eval():
        at = jax.tree.map(draw, (jax.eval_shape(lambda: cell.parameters), state, x, weights))
        found = jax.jit(lambda at: lax.map(lambda point: touched(*point), at))(at)
        states, entries = jax.tree.map(lambda leaf: np.asarray(leaf).any(axis=0), found)
    axes = []
    for name, by_axis in entries.items():
        fit = [
            axis
            for axis, reached in enumerate(by_axis)
            if reached.shape[1] % n == 0 and _is_split(reached)
        ]
        axes += [(name, fit[0])] if fit else []
    return not np.any(states & ~np.eye(n, dtype=bool)), tuple(axes)


def _is_split(reached: np.ndarray) -> bool:
    """Return whether each unit depends only on its own entries, given a matrix units x entries."""
    n = len(reached)
    blocks = reached.reshape(n, -1, n).any(axis=1)
    return bool(np.all(blocks == np.eye(n, dtype=bool)))


def _any_but(gradient: Array, axis: int) -> Array:
    return jnp.any(gradient != 0, axis=tuple(a for a in range(gradient.ndim) if a != axis))


def _name(path: tuple) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".")
