"""Growth of a mixture's state when the number of classes doubles.

Each array with an axis of classes becomes that of a new mixture, with the old values in front: a
later class is as unknown as before the first row. Features and experts stay those of the first room
(`Shape.first_outputs`), so that all other arrays keep their sizes.
"""

from typing import Any

import jax
import jax.numpy as jnp

from foretrace._learner.optimizer import packing_of
from foretrace._learner.packing import Packed
from foretrace._learner.state import LearnerState
from foretrace.stream.experts.network import NetworkState
from foretrace.stream.model.mix_classes import unseen
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.state import MixtureState


def grown(new: Mixture, state: MixtureState) -> MixtureState:
    """Return a state enlarged to a mixture's number of classes.

    Args:
        new: mixture of the same experts as the state's, for more classes.
        state: the state; it is not changed.
    """
    with jax.enable_x64(True):
        fresh = new.init()
        if fresh.waiting is not None:
            # A row that waits was predicted when no later class had been seen.
            mixed = jnp.full_like(fresh.waiting.mixed, unseen(new.shape.outputs))
            fresh = fresh._replace(waiting=fresh.waiting._replace(mixed=mixed))
        pairs = zip(state.experts, fresh.experts, strict=True)
        experts = tuple(_expert(one, other) for one, other in pairs)
        found = _wider(state._replace(experts=()), fresh._replace(experts=()))
        return found._replace(experts=experts)


def _expert(old: Any, fresh: Any) -> Any:
    """Return an expert's state, enlarged to more classes."""
    if not isinstance(old, NetworkState):
        return _wider(old, fresh)
    return NetworkState(_learned(old.learner, fresh.learner), *_wider(old[1:], fresh[1:]))


def _wider(old: Any, fresh: Any) -> Any:
    """Return the new tree, with the old values at the start of each array."""
    leaves, tree = jax.tree.flatten(fresh)
    pairs = zip(jax.tree.leaves(old), leaves, strict=True)
    return jax.tree.unflatten(
        tree,
        [a if a.shape == b.shape else b.at[tuple(map(slice, a.shape))].set(a) for a, b in pairs],
    )


def _learned(old: LearnerState, fresh: LearnerState) -> LearnerState:
    """Return the enlarged state of the network and its optimiser, whose moments are packed."""
    packings = packing_of(old.network), packing_of(fresh.network)

    def moments(one: Any, other: Any) -> Any:
        if not isinstance(one, Packed):
            return _wider(one, other)
        trees = (p.unpack(moment) for p, moment in zip(packings, (one, other), strict=True))
        return packings[1].pack(_wider(*trees))

    opt_state = jax.tree.map(
        moments, old.opt_state, fresh.opt_state, is_leaf=lambda node: isinstance(node, Packed)
    )
    rest = _wider(old._replace(opt_state=None), fresh._replace(opt_state=None))
    return rest._replace(opt_state=opt_state)
