"""The compiled step of an agent, with one trace in time and one in value.

The step, in the order of the code:

    delta = reward + discount * value' - value         both values with the parameters of before
    theta <- theta + step * delta * z                  any `Update`: `ObGD`, an optimiser of Optax
                                                       on -delta * z; `LSTD` solves for the decoder
    observation -> outputs, gradient, carry            with the new parameters: eligibility in time
    z     <- discount * trace_decay * z + gradient     eligibility in value

One run of the network could be saved if value' and the gradient were computed in the same call,
before the update. The effect of an update would then enter the next error like new information, and
predictions of a continuing stream diverged (dev/log/2026-11.md).
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jax import lax

from foretrace._engine.carry import is_finite
from foretrace._engine.data import Data
from foretrace._engine.forward import forward
from foretrace._engine.gradient import Evaluation
from foretrace._learner.optimizer import norm
from foretrace._recurrence.chunk import Carry
from foretrace._types import Array, Bool, Float, PRNGKeyArray
from foretrace.rl._moments import Moments
from foretrace.rl._options import Options
from foretrace.rl._state import AgentInfo, AgentState
from foretrace.rl._transition import Final, Outcome, Transition, along

_KEPT = {"carry": 1, "trace": 0, "entropy_grads": 0, "value": 0}
"""Results of each stream's run of the network that the state keeps, with the axis of streams."""


def learn_and_act(
    agent: Options, state: AgentState, transition: Transition
) -> tuple[Array, AgentState, AgentInfo]:
    """Learn from the outcome of the last action, and choose the next action."""
    given, fine = _outcome(agent, state, transition)
    observations = state.observations
    if observations is not None:
        observations = observations.including(transition.observation)
    x = inputs_of(observations, transition.observation)
    key, draw = jax.random.split(state.key)
    noise = _noises(agent, draw, state)
    rewards, outcome = state.rewards, given
    if rewards is not None:
        rewards, outcome = rewards.scaled(given, agent.discount)
    outcome = _with_following(agent, outcome, state, x, noise)
    error = outcome.reward + outcome.discount * outcome.final.value - state.value
    td_error = jnp.where(outcome.known, error, 0.0)
    trace = _with_entropy(agent, state.trace, state.entropy_grads, td_error)
    optimizer = agent.optimizer
    change = optimizer.update(state.opt_state, state.network, trace, td_error, outcome)
    taken = _each(agent, partial(_taken, agent, change.network), (1, 0, 0, 0, 0), (_KEPT, 0))
    kept, (action, output, gradient) = taken(state.carry, trace, x, noise, outcome)
    after = state._replace(
        **kept,
        network=change.network,
        opt_state=optimizer.remembering(change.state, gradient),
        outcome=jax.tree.map(jnp.zeros_like, outcome),
        awaited=jnp.ones_like(outcome.known),
        observations=observations,
        rewards=rewards,
        step=jnp.where(outcome.known.any(), optax.safe_increment(state.step), state.step),
        key=key,
    )
    # Not of packed arrays: in a vector, XLA repeats the decay of a module for each coefficient.
    size = optax.tree.norm(eqx.filter(after.carry.e, eqx.is_inexact_array))
    tested = (output, td_error, after.carry.h, norm(after.trace), size, change.norm)
    # One vector and one reduction. Otherwise XLA repeats the test at each element of the state.
    finite = [jnp.isfinite(part).ravel() for part in jax.tree.leaves(tested)]
    accepted = jnp.concatenate(finite).all()
    info = AgentInfo(
        td_error=td_error,
        value=state.value,
        trace_norm=_each(agent, norm)(trace),
        sensitivity_norm=size,
        step_size=change.step_size,
        update_norm=jnp.where(accepted, change.norm, 0.0),
        accepted=accepted,
    )
    # Every leaf of the state is chosen separately, so that nothing depends on a branch.
    chosen = optax.tree.where(accepted, after, _left(state, given))
    skipped = jnp.where(accepted & fine, state.skipped, optax.safe_increment(state.skipped))
    return action, chosen._replace(skipped=skipped), info


def _outcome(
    agent: Options, state: AgentState, transition: Transition
) -> tuple[Outcome, Bool[Array, ""]]:
    """Return the outcome to learn from, and whether its numbers are finite."""
    given = Outcome.of(transition, agent.discount, _final(agent, state, transition))
    fine = is_finite((given.reward, given.discount, given.final))
    return state.outcome.followed_by(given, state.awaited & fine), fine


def _final(agent: Options, state: AgentState, transition: Transition) -> Final:
    """Return the values of the last observations in episodes that were cut."""

    def found() -> Final:
        x = inputs_of(state.observations, transition.final_observation)
        # Other noise than for the next action, which belongs to another observation.
        noise = _noises(agent, jax.random.fold_in(state.key, 2), state)
        return _next(agent, state, x, noise)

    none = jax.tree.map(jnp.zeros_like, state.outcome.final)
    if transition.final_observation is None:
        return none
    return lax.cond(transition.truncated.any(), found, lambda: none)


def _left(state: AgentState, outcome: Outcome) -> AgentState:
    """Return the state after a refused step.

    The end of an episode can still be learned from. Other outcomes lack the next observation.
    """
    left = outcome._replace(known=outcome.known & outcome.done)
    return state._replace(outcome=left, awaited=jnp.zeros_like(outcome.known))


def _each(agent: Options, function: Any, in_axes: tuple[int, ...] = (0,), out_axes: Any = 0) -> Any:
    """Return a function of one stream that is applied to all streams."""
    if agent.batch_size is None:
        return function
    over_streams = _only if agent.batch_size == 1 else jax.vmap
    return over_streams(function, in_axes, out_axes)


def _noises(agent: Options, key: PRNGKeyArray, state: AgentState) -> Float[Array, "*B K"]:
    """Sample the random part of each stream's next action."""
    keys = key if agent.batch_size is None else jax.random.split(key, agent.batch_size)
    return _each(agent, partial(noise_of, agent, state))(keys)


def noise_of(agent: Options, state: AgentState, key: PRNGKeyArray) -> Float[Array, "K"]:
    """Sample the random part of one stream's next action."""
    return agent.method.noise(key, state.step, state.network.output_size, state.value.dtype)


def _with_following(
    agent: Options, outcome: Outcome, state: AgentState, x: Array, noise: Array
) -> Outcome:
    """Return the outcome with the value of the next state, also for truncated episodes."""

    def chosen(last: Array, following: Array) -> Array:
        return jnp.where(along(outcome.truncated, following), last, following)

    following = _next(agent, state, x, noise)
    return outcome._replace(final=jax.tree.map(chosen, outcome.final, following))


def _next(agent: Options, state: AgentState, x: Array, noise: Array) -> Final:
    """Return the value of the next inputs, without learning or changing the carry."""

    def of_stream(carry: Carry, x: Array, noise: Array) -> Final:
        before = Carry(carry.h, None)

        def value(decoder: Any) -> Array:
            network = eqx.tree_at(lambda network: network.decoder, state.network, decoder)
            output = forward(network, before, x[None], keep_carry=False)[0][0]
            return agent.method.next_value(output, noise)

        if not agent.optimizer.asks_following:
            return Final(value(state.network.decoder), None)
        return Final(*jax.value_and_grad(value)(state.network.decoder))

    return _each(agent, of_stream, (1, 0, 0))(state.carry, x, noise)


def _taken(
    agent: Options, network: Any, carry: Carry, trace: Any, x: Array, noise: Array, outcome: Outcome
) -> tuple[dict[str, Any], tuple[Array, Array, Any]]:
    """Run and differentiate the network of one stream, and choose its action.

    Returns:
        The values that the state keeps; and the action, the outputs and the gradient of the
        objective.
    """
    found, entropy_grads = _differentiated(agent, network, carry, x, noise, outcome.done)
    method, output = agent.method, found.outputs[0]
    gradient = agent.optimizer.trained(found.grads)
    keep = outcome.discount * agent.trace_decay
    # If an error is missing, later errors contain no information about earlier steps.
    ended = outcome.done | ~outcome.known | method.cuts_trace(output, noise)
    keep = jnp.where(ended, 0.0, keep)
    kept = {
        "carry": found.carry,
        "trace": jax.tree.map(lambda z, g: keep * z + g, trace, gradient),
        "entropy_grads": entropy_grads,
        "value": method.value(output, noise),
    }
    return kept, (method.action(output, noise), output, gradient)


def _differentiated(
    agent: Options, network: Any, carry: Carry, x: Array, noise: Array, reset: Array
) -> tuple[Evaluation, Any]:
    """Return outputs, gradient and carry of one stream, and the gradient of the entropy."""
    data, method = Data(x[None], noise[None], reset=reset[None]), agent.method
    evaluated = partial(agent._gradient, network, carry, data)
    if not method.entropy:
        return evaluated(method.objective), None

    def weighted(weights: Array) -> Evaluation:
        def loss(output: Array, noise: Array) -> Array:
            objective, entropy = method.objective(output, noise), method.policy_entropy(output)
            return weights[0] * objective + weights[1] * entropy

        return evaluated(loss)

    # The network is run once, and only the backward pass is run for both gradients.
    axes = Evaluation(loss=0, grads=0, carry=None, outputs=None)  # type: ignore[arg-type]
    both = jax.vmap(weighted, out_axes=axes)(jnp.eye(2, dtype=noise.dtype))
    grads, entropy = (jax.tree.map(lambda leaf, i=i: leaf[i], both.grads) for i in range(2))
    return both._replace(loss=both.loss[0], grads=grads), entropy


def _with_entropy(agent: Options, trace: Any, entropy_grads: Any, td_error: Array) -> Any:
    """Add the gradient of the entropy, multiplied by the sign of the TD error.

    Because the update multiplies the trace by this error, this term always increases the entropy.
    """
    if entropy_grads is None:
        return trace
    sign = agent.method.entropy * jnp.sign(td_error)
    return jax.tree.map(lambda z, g: z + along(sign, g) * g, trace, entropy_grads)


def inputs_of(observations: Moments | None, observation: Array) -> Array:
    """Return the inputs of the network for an observation."""
    return observation if observations is None else observations.normalised(observation)


def _only(function: Callable, in_axes: tuple[int, ...], out_axes: Any) -> Callable:
    """Return `jax.vmap(function)` for a single stream, which is faster without its axis."""

    def each_leaf(change: Callable[..., Array], axis: int, part: Any) -> Any:
        return jax.tree.map(partial(change, axis=axis), part)

    def apply(*args: Any) -> Any:
        found = function(*map(partial(each_leaf, jnp.squeeze), in_axes, args))
        return jax.tree.map(partial(each_leaf, jnp.expand_dims), out_axes, found)

    return apply
