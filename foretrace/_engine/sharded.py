"""Gradient of a batch sharded over devices: one exchange adds the parts.

Left to the compiler, every parameter of every layer is exchanged on its own, in the middle of the
backward pass. Each exchange waits for the slowest device: between two processes on one machine they
took twice as long as the step.
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
    """Return the result of `evaluate` for a sharded batch; the two differ only by rounding.

    Args:
        mesh: one-dimensional device mesh; its size divides the batch.
        network: network, replicated.
        carry: carry, sharded over its second axis, as is the carry that is returned.
        data: chunk, sharded over its first axis, as are the outputs; it has one key, not a key for
            each stream.
        options: rule, loss and other options of `evaluate`.
    """
    (axis,) = mesh.axis_names
    replicated, streams, layers = PartitionSpec(), PartitionSpec(axis), PartitionSpec(None, axis)

    def own(network: AbstractNetwork, carry: Carry | None, data: Data) -> Evaluation:
        found = evaluate(network, carry, data, **options)
        # One vector, so that there is one exchange.
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
    # Each stream keeps the masks that it has on one device.
    keys = None if data.key is None else jax.random.split(data.key, data.xs.shape[0])
    return run(network, carry, data._replace(key=keys))
