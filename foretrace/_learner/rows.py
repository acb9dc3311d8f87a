"""Learning row by row, for learners with a second-order step or a head by least squares."""

from functools import partial
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import optax

from foretrace._engine.carry import is_finite
from foretrace._engine.data import Data
from foretrace._learner.kalman import Kalman, KalmanState
from foretrace._learner.optimizer import norm
from foretrace._learner.row_step import Learned, RowStep
from foretrace._learner.state import Info, LearnerState
from foretrace._learner.wrappers import holding, in_front_of_recurrences
from foretrace._network import AbstractNetwork
from foretrace._types import PyTree

if TYPE_CHECKING:
    from foretrace._learner.learner import Learner


def row_step(learner: "Learner") -> RowStep | None:
    """Return the step of one row, if the learner learns row by row."""
    optimizer, head = learner.optimizer, learner.head
    if head is None and not isinstance(optimizer, Kalman):
        return None
    held = partial(unread, front=not learner.trains_encoder(1), decoder=head is not None)
    if not isinstance(optimizer, Kalman):
        optimizer = holding(optimizer, held)
    return RowStep(
        learner.network,
        rule=learner.rule,
        optimizer=optimizer,
        head=head,
        loss=learner.loss,
        held=held(learner.network),
        batch_size=learner.batch_size,
    )


def unread(params: AbstractNetwork, *, front: bool, decoder: bool) -> PyTree[bool]:
    """Return True for the parameters that rows do not train.

    Args:
        params: network.
        front: whether the encoder and the norms in front of the cells are not trained.
        decoder: whether a head reads instead of the decoder.
    """
    in_front = in_front_of_recurrences(params)

    def closed(path: tuple, leaf: bool) -> bool:
        return (front and leaf) or (decoder and path[0].name == "decoder")

    return jax.tree.map_with_path(closed, in_front)


def learn_rows(step: RowStep, state: LearnerState, data: Data) -> tuple[LearnerState, Info]:
    """Return the state after the rows of a chunk, or the one before if anything is not finite.

    Args:
        step: step of one row.
        state: state before the chunk.
        data: rows with their targets, weights and resets.
    """
    assert state.carry is not None and state.errors is not None
    before = Learned(state.network, state.opt_state, state.carry, state.head, state.errors)
    after, seen = step.learn(before, data)
    moved = jax.tree.map(jnp.subtract, after.network, before.network)
    gradient_norm, update_norm = norm(seen.gradient), norm(moved)
    # The state of an Optax optimiser may be infinite, such as the best loss so far; its update may
    # not.
    covariances = after.opt_state if isinstance(after.opt_state, KalmanState) else None
    kept = (after.carry, covariances, after.head, after.errors)
    accepted = is_finite((seen.loss, gradient_norm, update_norm, kept))
    following = state._replace(**after._asdict(), step=optax.safe_increment(state.step))
    refused = state._replace(skipped=optax.safe_increment(state.skipped))
    info = Info(
        seen.loss, seen.outputs, gradient_norm, jnp.where(accepted, update_norm, 0), accepted
    )
    # A refused call leaves no trace: every leaf is chosen, so that nothing depends on a branch.
    return optax.tree.where(accepted, following, refused), info
