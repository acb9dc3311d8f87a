"""The argument `cell` of a network: a function that makes a cell."""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx

from foretrace._cells.abstract import AbstractCell, check_interface
from foretrace._types import PRNGKeyArray

_EXPECTED = (
    "expected a function make(size, *, key) that returns a cell, such as "
    "ft.LRU.factory(state_size=64)"
)


def shapes_of(make_cell: Callable[..., AbstractCell], size: int, key: PRNGKeyArray) -> Any:
    """Return the shapes of the cell that a function makes.

    Raises:
        TypeError: `make_cell` is not a function `make(size, *, key)` that returns a cell, or the
            cell breaks the contract of `check_interface`.
    """
    if isinstance(make_cell, eqx.Module):
        raise TypeError(
            f"cell is a {type(make_cell).__name__}, {_EXPECTED}: every block of the network gets a "
            "cell of its own"
        )
    if not callable(make_cell):
        raise TypeError(f"cell is {make_cell!r:.80}, {_EXPECTED}")
    name = getattr(make_cell, "__name__", type(make_cell).__name__)
    try:
        signature = inspect.signature(make_cell)
    except ValueError:  # the signature of some functions cannot be read
        signature = None
    try:
        if signature is not None:
            signature.bind(size, key=key)
    except TypeError as error:
        raise TypeError(
            f"cell={name} cannot be called as {name}({size}, key=...) ({error}); {_EXPECTED}"
        ) from error
    made = eqx.filter_eval_shape(make_cell, size, key=key)
    if not isinstance(made, AbstractCell):
        raise TypeError(
            f"cell={name} makes a {type(made).__name__}, which is not a cell of foretrace; "
            f"{_EXPECTED}; ft.FromModule.factory wraps a recurrent module of another library"
        )
    check_interface(made)
    return made
