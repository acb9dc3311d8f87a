"""Cells of several kinds side by side in one layer."""

from collections.abc import Callable
from functools import partial
from typing import Any, Self

import equinox as eqx
import jax

from foretrace._cells.abstract import AbstractCell, Coefficients
from foretrace._cells.factory import shapes_of
from foretrace._types import Array, Float, PRNGKeyArray, State


def _make(cell: Callable[..., Any], makers: Any, input_size: int, *, key: PRNGKeyArray) -> Any:
    for make in makers:
        shapes_of(make, input_size, key)
    keys = jax.random.split(key, len(makers))
    return cell(*(make(input_size, key=own) for make, own in zip(makers, keys, strict=True)))


class Beside(AbstractCell):
    r"""Cells side by side in one layer, which read the same input and whose outputs are added.

        h' = (step_1(theta_1, h_1, x), step_2(theta_2, h_2, x), ...)
        y = readout_1(h_1, x) + readout_2(h_2, x) + ...

    A layer can thus have modules with different kinds of memory: modules that keep inputs in their
    order, such as those of `RTU`, and gated units that select an input and keep it, such as those
    of `GRU`. Module n consists of module n of every cell. The state of a cell has no sensitivity
    to the coefficients of the other cells: the sensitivities have as many elements as in separate
    layers.

    The modules are independent if the modules of every cell are. The layer runs through a chunk
    step by step, even if its cells are linear.

    Args:
        cells: two or more cells with equal numbers of inputs, modules and outputs. Their states are
            either all real or all complex; `RTU` is the real form of `LRU`.

    Raises:
        ValueError: there are fewer than two cells, or they do not fit together.
        TypeError: `factory` received a function that does not make a cell.

    >>> import foretrace as ft, jax
    >>> make = ft.Beside.factory(ft.RTU.factory(state_size=4), ft.GRU.factory(state_size=4))
    >>> cell = make(4, key=jax.random.key(0))
    >>> cell.output_size, cell.independent
    (4, False)
    """

    cells: tuple[AbstractCell, ...]
    input_size: int = eqx.field(static=True)
    state_size: int = eqx.field(static=True)

    def __init__(self, *cells: AbstractCell):
        names = "+".join(type(cell).__name__ for cell in cells)
        if len(cells) < 2 or not all(isinstance(cell, AbstractCell) for cell in cells):
            raise ValueError(f"Beside({names}): expected two cells or more, not what makes them")
        sizes = [(cell.input_size, cell.state_size, cell.output_size) for cell in cells]
        if len({*sizes}) > 1:
            raise ValueError(
                f"Beside({names}): inputs, modules and outputs are {sizes}, and must be equal"
            )
        states = eqx.filter_eval_shape(lambda: [cell.init_state() for cell in cells])
        if len({leaf.dtype for leaf in jax.tree.leaves(states)}) > 1:
            raise ValueError(f"Beside({names}): states mix real and complex; use RTU for LRU")
        self.cells = cells
        self.input_size, self.state_size = cells[0].input_size, cells[0].state_size

    @classmethod
    def factory(cls, *cells: Callable[..., AbstractCell], **options: Any) -> Callable[..., Self]:
        """Return `make(input_size, *, key)` from the functions that make the cells."""
        return partial(_make, partial(cls, **options), cells)

    def coefficients(self) -> Coefficients:
        """Return the coefficients of all cells. The number of its cell precedes each name."""
        found = Coefficients({}, {})
        for i, cell in enumerate(self.cells):
            for group, own in zip(found, cell.coefficients(), strict=True):
                group.update({f"{i}.{name}": leaf for name, leaf in own.items()})
        return found

    def init_state(self) -> State:
        """Return the states of all cells before the first step."""
        return tuple(cell.init_state() for cell in self.cells)

    def step(self, theta: Coefficients, own: State, others: State, x: Float[Array, "I"]) -> State:
        """Advance every cell by one step."""
        cells = enumerate(self.cells)
        return tuple(cell.step(_of(theta, f"{i}."), own[i], others[i], x) for i, cell in cells)

    def readout(self, h: State, x: Float[Array, "I"]) -> Float[Array, "H"]:
        """Return the sum of the outputs of all cells."""
        first, *more = (cell.readout(own, x) for cell, own in zip(self.cells, h, strict=True))
        return sum(more, start=first)


def _of(theta: Coefficients, prefix: str) -> Coefficients:
    """Return the coefficients of the cell whose names have this prefix."""

    def own(group: dict[str, Array]) -> dict[str, Array]:
        return {name[len(prefix) :]: group[name] for name in group if name.startswith(prefix)}

    return Coefficients(*map(own, theta))
