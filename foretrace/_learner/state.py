"""State and measurements of a learner: `LearnerState` and `Info`."""

from typing import Any, NamedTuple

import optax

from foretrace._learner.error_moments import Errors
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.heads import HeadState


class LearnerState(NamedTuple):
    """The complete state of learning, which `foretrace.save` writes.

    Args:
        network: network with its parameters.
        opt_state: state of the optimiser.
        carry: states and sensitivities of the streams; None for a learner of whole sequences.
        grads: gradient summed over the sequence so far; None unless the learner accumulates.
        counted: whether any step of the sequence has counted so far; None unless the learner
            accumulates.
        step: number of accepted calls of `Learner.step`, at most `2^31 - 1`, as in Optax.
        skipped: number of calls that were refused because loss, gradient or new state was NaN or
            infinite.
        key: PRNG key of the dropout masks, and of the modules that a rule samples for the next
            sequence.
        head: state of a least-squares head; None if the network's decoder is the readout.
        errors: moments of the errors if rows are learned one by one; None otherwise.
    """

    network: Any
    opt_state: optax.OptState
    carry: Carry | None
    grads: Any
    counted: Bool[Array, ""] | None
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    key: PRNGKeyArray
    head: HeadState | None = None
    errors: Errors | None = None


class Info(NamedTuple):
    """Measurements of a step, which are not needed to continue.

    Args:
        loss: `sum_t mask_t * loss_t`, summed over the steps of the call and averaged over streams.
            With `mean_loss`, it is divided by the sum of the mask.
        outputs: outputs of the network before the update, for progressive validation.
        gradient_norm: global norm of this call's gradient before clipping. Under `ft.kalman`, this
            is the gradient of half the squared errors.
        update_norm: global norm of the change of the parameters. It is zero if no step counts or
            the call was refused.
        accepted: whether the call was accepted. A call is refused, and the state is then unchanged,
            if loss, gradient, update or carry is NaN or infinite.
    """

    loss: Float[Array, ""]
    outputs: Float[Array, "..."]
    gradient_norm: Float[Array, ""]
    update_norm: Float[Array, ""]
    accepted: Bool[Array, ""]


def choose(
    accepted: Bool[Array, ""], counted: Bool[Array, ""], after: LearnerState, before: LearnerState
) -> LearnerState:
    """Return the new state, or the old state if the call is refused.

    Args:
        accepted: whether the call is accepted.
        counted: whether any step counts. If none does, the weights stay, although momentum or decay
            would move them.
        after: state if the call is accepted.
        before: state if the call is refused.
    """
    learned = (after.network, after.opt_state), (before.network, before.opt_state)
    network, opt_state = optax.tree.where(accepted & counted, *learned)
    return optax.tree.where(accepted, after, before)._replace(network=network, opt_state=opt_state)


class UntrainedParameters(UserWarning):
    """Warning that some parameters can receive no gradient under the chosen rule."""
