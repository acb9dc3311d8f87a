"""The gradient of a batch whose streams are spread over devices: each computes its own, and one exchange adds them up.

Left to the compiler, every parameter of every layer is exchanged on its own, in the middle of the backward pass. Each
exchange waits for the slowest device: between two processes on one machine they took twice as long as the step.
"""

from typing import Any

import jax
from jax import lax
from jax.flatten_util import ravel_pytree
from jax.sharding import Mesh, PartitionSpec

from foretrace._engine.carry import Carry
from foretrace._engine.gradient import Evaluation, evaluate
from foretrace._network import Network
from foretrace._types import Array, Mask, PRNGKeyArray


def evaluate_spread(
    mesh: Mesh,
    network: Network,
    carry: Carry | None,
    xs: Array,
    ys: Array,
    mask: Mask | None,
    reset: Array | None,
    key: PRNGKeyArray | None,
    **options: Any,
) -> Evaluation:
    """Return what `evaluate` returns for a batch, but for rounding.

    Args:
        mesh: one axis of devices, of whose number the batch is a multiple.
        network: the same on all.
        carry: spread, as is the carry that is returned.
        xs: spread; so is what follows, and the outputs.
        ys: targets.
        mask: which steps count.
        reset: which start an episode.
        key: of the dropout masks.
        options: rule, loss and the rest of what `evaluate` is told.
    """
    (axis,) = mesh.axis_names
    same, streams, layers = PartitionSpec(), PartitionSpec(axis), PartitionSpec(None, axis)

    def own(network: Network, carry: Carry | None, *batch: Any) -> Evaluation:
        found = evaluate(network, carry, *batch, **options)
        vector, restore = ravel_pytree((found.loss, found.grads))
        value, grads = restore(lax.pmean(vector, axis))
        return Evaluation(value, grads, found.carry, found.outputs)

    places: Any = (same, same, layers, streams)
    run = jax.shard_map(
        own,
        mesh=mesh,
        in_specs=(same, layers, streams, streams, streams, streams, streams),
        out_specs=Evaluation(*places),
        check_vma=False,
    )
    # Each stream keeps the masks that it has on one device.
    keys = None if key is None else jax.random.split(key, xs.shape[0])
    return run(network, carry, xs, ys, mask, reset, keys)
