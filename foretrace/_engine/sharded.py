"""Gradient of a batch sharded over devices, whose parts are added in one exchange.

Without this file, the compiler would exchange each parameter of each layer separately, in the
middle of the backward pass. Each exchange waits for the slowest device. Between two processes on
one machine, these exchanges took twice as long as the step.
"""

from typing import Any

import jax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from foretrace._engine.data import Data
from foretrace._engine.gradient import Evaluation, evaluate
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry


def evaluate_sharded(
    mesh: Mesh, network: AbstractNetwork, carry: Carry | None, data: Data, **options: Any
) -> Evaluation:
    """Return the result of `evaluate` for a sharded batch, up to rounding.

    Args:
        mesh: one-dimensional device mesh whose size divides the batch size.
        network: replicated network.
        carry: carry, sharded over its second axis. The returned carry is sharded likewise.
        data: chunk, sharded over its first axis, with one key for all streams. The outputs are
            sharded likewise.
        options: rule, loss and other options of `evaluate`.
    """
    (axis,) = mesh.axis_names
    replicated, streams, layers = PartitionSpec(), PartitionSpec(axis), PartitionSpec(None, axis)

    def own(network: AbstractNetwork, carry: Carry | None, data: Data) -> Evaluation:
        found = evaluate(network, carry, data, **options)
        # One vector, so that there is only one exchange.
        vector, restore = ravel_pytree((found.loss, found.grads))
        value, grads = restore(lax.pmean(vector, axis))
        return Evaluation(value, grads, found.carry, found.outputs)

    places: Any = (replicated, replicated, layers, streams)
    run = jax.shard_map(
        own,
        mesh=mesh,
        in_specs=(replicated, layers, streams),
        out_specs=Evaluation(*places),
        check_vma=False,
    )
    # Each stream has the same masks as on a single device.
    keys = None if data.key is None else jax.random.split(data.key, data.xs.shape[0])
    return run(network, carry, data._replace(key=keys))
