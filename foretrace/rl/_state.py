"""State and measurements of an agent's learning: `AgentState` and `AgentInfo`."""

from typing import Any, NamedTuple

import optax

from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, Int, PRNGKeyArray
from foretrace.rl._moments import Moments, RewardScale
from foretrace.rl._transition import Outcome


class AgentInfo(NamedTuple):
    """Measurements of a step, which are not needed to continue.

    Args:
        td_error: temporal-difference error of each stream; 0 if there was nothing to learn from.
        value: value of each stream's previous observation, to which the error belongs.
        trace_norm: norm of each stream's trace of gradients.
        sensitivity_norm: norm of the sensitivities of all streams.
        step_size: step size of each stream under `ObGD`; 1 under other optimisers.
        update_norm: norm of the change of the parameters.
        accepted: whether the step was accepted. Inside a compiled program, a step is refused if an
            observation, an error or an update is NaN or infinite.
    """

    td_error: Float[Array, "*B"]
    value: Float[Array, "*B"]
    trace_norm: Float[Array, "*B"]
    sensitivity_norm: Float[Array, ""]
    step_size: Float[Array, "*B"]
    update_norm: Float[Array, ""]
    accepted: Bool[Array, ""]


class AgentState(NamedTuple):
    """The complete state of learning, which `foretrace.save` writes.

    Args:
        network: network with its parameters.
        opt_state: state of `LSTD` or of the Optax optimiser; None under `ObGD`.
        carry: states and sensitivities, which give credit to earlier inputs.
        trace: decaying sum of the gradients of each stream, which gives credit to earlier
            predictions. Under `LSTD`, the gradients are only of the decoder.
        entropy_grads: gradient of the entropy of the last policy; None if the weight of the entropy
            is 0.
        value: value of the last observation, or of the last action.
        outcome: end of an episode at a refused step. The next accepted step learns from this end.
        awaited: whether the last action was chosen for an observation, so that its outcome counts.
        observations: moments of the observations; None if they are not normalised.
        rewards: scale of the rewards; None if they are not scaled.
        step: number of updates.
        skipped: number of steps at which an observation, a reward, an error or an update was
            refused because it was NaN or infinite.
        key: PRNG key of the actions.
    """

    network: Any
    opt_state: optax.OptState
    carry: Carry
    trace: Any
    entropy_grads: Any
    value: Float[Array, "*B"]
    outcome: Outcome
    awaited: Bool[Array, "*B"]
    observations: Moments | None
    rewards: RewardScale | None
    step: Int[Array, ""]
    skipped: Int[Array, ""]
    key: PRNGKeyArray
