"""A network that consists only of modules: layers of cells whose outputs are all read."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax

from foretrace._cells.abstract import AbstractCell
from foretrace._cells.factory import shapes_of
from foretrace._cells.parts import check_key, check_sizes
from foretrace._cells.rotation import Rotation
from foretrace._cells.set_reset import SetReset
from foretrace._network import AbstractNetwork, Linear, run_once
from foretrace._types import PRNGKeyArray

MODULES = (SetReset.factory(state_size=16), Rotation.factory(state_size=8))
"""Default cells of a layer.

As a third kind, units without products were tried. They give the same scores and take longer
(dev/log/2026-11.md).
"""


class ModuleNetwork(AbstractNetwork):
    """Network of layers with several cells each, in which all outputs of all cells are read.

        z_1 = x,  y_l = [readouts of the cells of layer l on z_l],  z_{l+1} = [z_l, y_l]
        outputs = decoder(z_{depth+1})

    The features z_{depth+1} contain the inputs themselves. The outputs of the modules are not
    mixed, scaled or squashed: they reach the decoder and the higher layers unchanged. Use this
    network with a second-order step (`ft.kalman`), which needs only one small covariance for each
    module, or with a least-squares head (`ft.heads.least_squares`), which replaces the decoder.

    Args:
        input_size: number of inputs at each step.
        output_size: number of outputs at each step.
        cells: functions `make(size, *, key)`, such as `SetReset.factory(state_size=8)`, each of
            which makes one cell of every layer. Default: 16 modules of `SetReset` and 8 of
            `Rotation`.
        depth: number of layers. Each layer reads the inputs and the outputs of all layers below.
        key: PRNG key of the initialisation.

    Raises:
        TypeError: a size is not a whole number, `cells` has an entry that does not make a cell, or
            `key` is not a PRNG key.
        ValueError: a size is below one, or there are no cells.

    >>> import foretrace as ft, jax
    >>> cells = (ft.SetReset.factory(state_size=4), ft.Rotation.factory(state_size=3))
    >>> network = ft.ModuleNetwork(5, 2, cells=cells, key=jax.random.key(0))
    >>> network.feature_size, ft.forward(network, None, jax.numpy.ones((6, 5)))[0].shape
    (19, (6, 2))
    """

    layers: tuple[tuple[AbstractCell, ...], ...]
    decoder: Linear
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    cumulative_mean: bool = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        cells: Sequence[Callable[..., AbstractCell]] | None = None,
        depth: int = 1,
        key: PRNGKeyArray,
    ):
        check_key("ModuleNetwork", key)
        check_sizes("ModuleNetwork", input_size=input_size, output_size=output_size, depth=depth)
        cells = MODULES if cells is None else cells
        if not cells:
            raise ValueError(
                "ModuleNetwork(cells=()) needs at least one cell, such as "
                "ft.SetReset.factory(state_size=8)"
            )
        self.input_size, self.output_size, self.depth = input_size, output_size, depth
        self.cumulative_mean = False

        def draw(key: PRNGKeyArray) -> tuple[tuple[tuple[AbstractCell, ...], ...], Linear]:
            decoder_key, key = jax.random.split(key)
            layers, size = [], input_size
            for layer_key in jax.random.split(key, depth):
                for make in cells:
                    shapes_of(make, size, key)
                keys = jax.random.split(layer_key, len(cells))
                layers.append(
                    tuple(make(size, key=own) for make, own in zip(cells, keys, strict=True))
                )
                size += sum(cell.output_size for cell in layers[-1])
            return tuple(layers), Linear(size, output_size, key=decoder_key)

        self.layers, self.decoder = run_once(draw, key)

    @property
    def feature_size(self) -> int:
        """Number of features that the decoder reads: the inputs and the outputs of all cells."""
        return self.input_size + sum(cell.output_size for layer in self.layers for cell in layer)

    @property
    def cells(self) -> tuple[tuple[AbstractCell, ...], ...]:
        """The cells of all layers. Every leaf has an axis of length one in front."""
        return jax.tree.map(lambda leaf: leaf[None], self.layers)

    def each_cell(self, function: Callable[..., Any], *trees: Any) -> Any:
        """Apply a function to each cell, together with the cell's entries of the other trees."""
        layers = zip(self.layers, *jax.tree.map(lambda leaf: leaf[0], trees), strict=True)
        found = tuple(tuple(map(function, *layer)) for layer in layers)
        return jax.tree.map(lambda leaf: leaf[None], found)
