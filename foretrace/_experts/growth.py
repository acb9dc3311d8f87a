"""The state of a mixture carried over to room for more classes.

Each array with an axis of classes becomes that of a new mixture, with the old values in front: a
later class is as unknown as before the first row. Features and experts stay those of the first room
(`Shape.first_outputs`), so that all other arrays keep their sizes.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._experts.mix_classes import unseen
from foretrace._experts.mixture import Mixture, MixtureState
from foretrace._experts.recurrent import RecurrentState
from foretrace._learner.optimizer import packing_of
from foretrace._learner.packing import Packed


def grown(new: Mixture, state: MixtureState) -> MixtureState:
    """Return a state with room for the classes of a mixture.

    Args:
        new: mixture of the same experts as the state's, for more classes.
        state: the state; it is not changed.
    """
    with jax.enable_x64(True):
        fresh = new.init()
        if fresh.rings is not None:
            # A row that waits was predicted when no later class had been seen.
            mixed = jnp.full_like(fresh.rings.mixed, unseen(new.shape.outputs))
            fresh = fresh._replace(rings=fresh.rings._replace(mixed=mixed))
        found = _wider(state._replace(network=None), fresh._replace(network=None))
        if state.network is None:
            return found
        return found._replace(network=_learned(new, state.network, fresh.network))


def _wider(old: Any, fresh: Any) -> Any:
    """Return the fresh tree with the old values in front of each array."""
    leaves, tree = jax.tree.flatten(fresh)
    pairs = zip(jax.tree.leaves(old), leaves, strict=True)
    return jax.tree.unflatten(
        tree,
        [a if a.shape == b.shape else b.at[tuple(map(slice, a.shape))].set(a) for a, b in pairs],
    )


def _learned(new: Mixture, old: RecurrentState, fresh: Any) -> RecurrentState:
    """Return the state of the network, its optimiser and its carries."""
    before, after = old.learner, fresh.learner
    parts = partial(_wider_network, new.shape.network_features)
    packings = packing_of(before.network), packing_of(after.network)

    def moments(one: Any, other: Any) -> Any:
        if not isinstance(one, Packed):
            return _wider(one, other)
        trees = (p.unpack(moment) for p, moment in zip(packings, (one, other), strict=True))
        return packings[1].pack(parts(*trees))

    opt_state = jax.tree.map(
        moments, before.opt_state, after.opt_state, is_leaf=lambda node: isinstance(node, Packed)
    )
    network = parts(before.network, after.network)
    rest = _wider(
        old._replace(learner=before._replace(network=None, opt_state=None)),
        fresh._replace(learner=after._replace(network=None, opt_state=None)),
    )
    return rest._replace(learner=rest.learner._replace(network=network, opt_state=opt_state))


def _wider_network(features: int, old: Any, fresh: Any) -> Any:
    """Return a network, or moments of one; its features stand behind the outputs."""

    def rolled(network: Any, by: int) -> Any:
        roll = partial(jnp.roll, shift=by, axis=0)
        return eqx.tree_at(lambda n: n.decoder, network, replace_fn=partial(jax.tree.map, roll))

    return rolled(_wider(rolled(old, features), rolled(fresh, features)), -features)
