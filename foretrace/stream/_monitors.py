"""Health of a network on a stream: a few numbers, measured when a line of metrics is written.

| monitor | what | range, and why |
|---|---|---|
| `largest_modulus` | largest modulus of a diagonal cell's decays | 0.1 to 0.99999 |
| `smallest_modulus` | smallest modulus of these | any: some modules may forget at once |
| `sensitivity_norm` | norm of e, over all layers | up to 10^6 |
| `update_ratio` | mean norm of an update over the parameters' norm | 10^-8 to 10^-2 |
| `dead_units` | share of features to which a layer adds a constant | up to 0.5 |
| `recent_coverage` | share of the last labels in intervals | within ten errors |

A unit is dead if what its block adds to it had a standard deviation below 10^-6 over the last
32 inputs.
"""

import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from foretrace._cells.abstract import AbstractDiagonalCell
from foretrace._learner.forgetting import BLOCK, HELD, LossWatch
from foretrace._network import Block, Network
from foretrace._recurrence.chunk import Carry
from foretrace._recurrence.unroll import unroll
from foretrace._rule import BPTT
from foretrace._types import Array, Float, State

RANGES = {
    "largest_modulus": (0.1, 0.99999),
    "sensitivity_norm": (0.0, 1e6),
    "update_ratio": (1e-8, 1e-2),
    "dead_units": (0.0, 0.5),
}
"""Ranges of the monitors: leaving one prints a warning, once until the monitor comes back."""

LABELS = BLOCK
"""Least number of labels over which the recent coverage of intervals is measured."""

_ERRORS = 10.0
"""Standard errors, of independent labels, by which this coverage may be too small.

Errors of forecasts follow each other, so a few are common. Too large is no fault: around exact
predictions, an interval holds every label.
"""

_DEAD = 1e-6

_LEAST_RISE = 0.05
"""Smallest rise of a lost level: of the log loss, or relative to the last value's error."""


class Monitors:
    """Monitors out of their range, and whether a level of scores was lost.

    >>> monitors = Monitors(0.9)
    >>> monitors.warnings({"dead_units": 0.75}), monitors.warnings({"dead_units": 0.8})
    (['dead_units is 0.75, outside its range of 0 to 0.5'], [])

    Args:
        coverage: share of labels that intervals are to hold.

    `recent` has the share of the last labels in their intervals, none before `LABELS`.
    """

    def __init__(self, coverage: float = 0.9) -> None:
        lowest = coverage - _ERRORS * math.sqrt(coverage * (1 - coverage) / LABELS)
        self.ranges = RANGES | {"recent_coverage": (max(lowest, 0.0), 1.0)}
        self.outside: set[str] = set()
        self.watch = LossWatch(_LEAST_RISE)
        self.lost: list[str] = []
        self.last = [0.0, 0.0]  # labels of the last block, and how many were in their intervals
        self.recent: dict[str, float] = {}

    def look(self, block: Mapping[str, float]) -> bool:
        """See the sums of scores since the last block; return whether a block ends here.

        Levels are means over blocks. The recent coverage is that of the present block, with the
        last one before `LABELS` labels.
        """
        is_class = "log_loss" in block
        names = "rows log_loss squared rows" if is_class else "rows mae squared no_change_mae"
        count, *loss = (block[name] for name in names.split())
        inside, ends = block.get("coverage", 0.0), count >= LABELS
        seen = [count, inside] if ends else [self.last[0] + count, self.last[1] + inside]
        if not is_class and seen[0] >= LABELS:
            share = round(seen[1] / seen[0], 6)
            self.recent = {"recent_coverage": share, "recent_labels": int(seen[0])}
        if not ends:
            return False
        self.last = [count, inside]
        if (lost := self.watch.add_block(count, *loss)) is not None:
            what = "log loss" if is_class else "error, relative to that of the last known number,"
            self.lost.append(
                f"the {what} was {lost[0]:.3g} in the last {HELD * count:,.0f} rows with a label, "
                f"and at most {lost[1]:.3g} for as long before: the stream has changed, or what "
                "was learned is lost"
            )
        return True

    def measure(
        self, network: Network, carry: Carry, update_norm: float | None, inputs: np.ndarray | None
    ) -> dict[str, float]:
        """Return the present values of the monitors that exist for this network.

        Args:
            network: network that learns.
            carry: states and sensitivities of a stream.
            update_norm: mean norm of the last updates; None if there was none.
            inputs: its last inputs; None while there were fewer than are kept.
        """
        xs = np.zeros((1, network.input_size)) if inputs is None else inputs
        values = {name: float(value) for name, value in _measured(network, carry, xs).items()}
        parameters = values.pop("parameter_norm")
        if update_norm is not None:
            values["update_ratio"] = update_norm / parameters if parameters else math.inf
        if inputs is None:
            del values["dead_units"]
        return values

    def warnings(self, values: dict[str, float]) -> list[str]:
        """Return a line for each monitor that has newly left its range, and for a lost level."""
        ranges = self.ranges
        out = {
            name
            for name, (low, high) in ranges.items()
            if name in values and not low <= values[name] <= high
        }
        lines = [
            f"{name} is {values[name]:.4g}, outside its range of {ranges[name][0]:.4g} to "
            f"{ranges[name][1]:g}"
            for name in sorted(out - self.outside)
        ]
        self.outside = out | (self.outside - values.keys())
        lost, self.lost = self.lost, []
        return lines + lost

    def to_json(self) -> list[Any]:
        """Return the state."""
        return [sorted(self.outside), self.watch.to_json(), self.last]

    def restore(self, state: list[Any]) -> None:
        """Restore what `to_json` returned."""
        outside, watch, self.last = state
        self.outside = set(outside)
        self.watch.restore(watch)


@jax.jit
def _measured(network: Network, carry: Carry, xs: Float[Array, "C I"]) -> dict[str, Array]:
    values = {
        "sensitivity_norm": optax.tree.norm(carry.e),
        "parameter_norm": optax.tree.norm(network),
    }
    if isinstance(network.blocks.cell, AbstractDiagonalCell):
        decays = jax.vmap(lambda block: block.cell.coefficients().recurrent)(network.blocks)
        # A coefficient for each module of each layer; with more axes it is no decay.
        moduli = [jnp.abs(leaf).ravel() for leaf in jax.tree.leaves(decays) if leaf.ndim == 2]
        if moduli:
            modulus = jnp.concatenate(moduli)
            values |= {"largest_modulus": modulus.max(), "smallest_modulus": modulus.min()}

    def layer(x: Array, now: tuple[Block, State]) -> tuple[Array, Array]:
        block, h = now
        zs = jax.vmap(block.before)(x)
        emitted, _ = unroll(block.cell, block.cell.coefficients(), h, zs, BPTT)
        after = jax.vmap(lambda x, y: block.after(x, y, None))(
            x, jax.vmap(block.cell.readout)(emitted, zs)
        )
        return after, jnp.std(after - x, axis=0) < _DEAD

    xs = jnp.asarray(xs, network.dtype)
    _, dead = lax.scan(layer, jax.vmap(network.encoder)(xs), (network.blocks, carry.h))
    return values | {"dead_units": dead.mean()}
