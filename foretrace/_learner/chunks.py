"""Learning with an Optax optimiser: one gradient of all steps of a call."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from foretrace._engine.carry import is_finite
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate
from foretrace._engine.sharded import evaluate_sharded
from foretrace._learner.optimizer import norm, updated
from foretrace._learner.options import Options
from foretrace._learner.state import Info, LearnerState
from foretrace._learner.wrappers import holding, under
from foretrace._types import Array
from foretrace.heads import HeadState


class Chunks:
    """Learning by the gradient of a chunk, or of all chunks of a sequence.

    Args:
        learner: learner with an Optax optimiser and the network's decoder.
    """

    def __init__(self, learner: Options):
        self.learner = learner
        mesh = learner.mesh
        self._evaluate = evaluate if mesh is None else partial(evaluate_sharded, mesh)

    def init(self, network: Any) -> tuple[Any, None, None]:
        """Return the first state of the optimiser."""
        return self.learner.optimizer.init(network), None, None

    def read(self, network: Any, head: HeadState | None) -> Callable[[Array], Array]:
        """Return the decoder."""
        return network.decoder

    def learn(self, state: LearnerState, data: Data, *, end: bool) -> tuple[Any, Info, bool]:
        """Learn from all steps of a call at once.

        Returns:
            Three results. The first is the state after the call, before it is accepted or refused.
            The second is the measurements, whose `accepted` covers only the parts that the state
            does not contain. The third says whether the sensitivities in the state are still those
            before the call. If so, they are updated in place once the call is accepted.
        """
        learner, steps = self.learner, data.xs.shape[-2]
        return_carry = not learner.whole_sequences and not end
        late = return_carry and learner.advances_late(state.network, steps)
        found = self._evaluate(
            state.network,
            state.carry,
            data,
            rule=learner.rule,
            loss=learner.loss,
            return_carry=return_carry,
            segment=learner.segment,
            advance=not late,
        )
        after, grads, known = state._replace(carry=found.carry), found.grads, {"value": found.loss}
        if learner.accumulate:
            # The loss of the whole sequence is not known, and the loss of the last chunk does not
            # belong to the gradient.
            grads, known = jax.tree.map(jnp.add, state.grads, grads), {}
            after = after._replace(grads=grads)
        gradient_norm = norm(found.grads)
        update_norm = jnp.zeros_like(gradient_norm)
        if end or not learner.accumulate:
            optimizer = learner.optimizer
            if not learner.trains_encoder(steps):
                optimizer = holding(optimizer, partial(under, state.network.in_front_of_cells))
            network, opt_state, update_norm = updated(
                optimizer, state.network, state.opt_state, grads, **known
            )
            # All chunks of a sequence share one dropout mask, so its key may change only at the
            # end.
            key = jax.random.split(state.key)[0]
            after = after._replace(network=network, opt_state=opt_state, key=key)
        # Masked steps do not show in loss and gradient, so the carry is checked as well.
        kept = is_finite(found.carry)
        return after, Info(found.loss, found.outputs, gradient_norm, update_norm, kept), late
