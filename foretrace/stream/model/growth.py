"""Growth of a mixture's state when the maximum number of classes doubles.

Each array with an axis of classes is replaced by the array of a new, larger mixture, and the old
values are copied to its beginning. A class that is added is in the same state as any class before
the first row. Features and experts keep the sizes of the first maximum (`Shape.first_outputs`), so
all other arrays keep their sizes.
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
    """Return a state enlarged to the number of classes of a mixture.

    Args:
        new: mixture for more classes, with the same experts as the mixture of the state.
        state: state to enlarge. It is not changed.
    """
    with jax.enable_x64(True):
        fresh = new.init()
        if fresh.waiting is not None:
            # A waiting row was predicted when no added class had been seen.
            mixed = jnp.full_like(fresh.waiting.mixed, unseen(new.shape.outputs))
            fresh = fresh._replace(waiting=fresh.waiting._replace(mixed=mixed))
        pairs = zip(state.experts, fresh.experts, strict=True)
        experts = tuple(_expert(one, other) for one, other in pairs)
        found = _wider(state._replace(experts=()), fresh._replace(experts=()))
        return found._replace(experts=experts)


def _expert(old: Any, fresh: Any) -> Any:
    """Return the state of an expert, enlarged to more classes."""
    if not isinstance(old, NetworkState):
        return _wider(old, fresh)
    return NetworkState(_learned(old.learner, fresh.learner), *_wider(old[1:], fresh[1:]))


def _wider(old: Any, fresh: Any) -> Any:
    """Return the new tree, with the old values at the beginning of each array."""
    leaves, tree = jax.tree.flatten(fresh)
    pairs = zip(jax.tree.leaves(old), leaves, strict=True)

    def wider(old: Any, fresh: Any) -> Any:
        at = tuple(map(slice, old.shape))
        return old if old.shape == fresh.shape else jnp.asarray(fresh).at[at].set(old)

    return jax.tree.unflatten(tree, [wider(*pair) for pair in pairs])


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
