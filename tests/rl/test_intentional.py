"""Intentional updates: the equations in NumPy, and what they learn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import make_agent, run, stream
from tiers import fast

from foretrace import rl
from foretrace.rl._transition import Final, Outcome

ETA, DECAY = 0.3, 0.6


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("streams", fast([3, None]))
def test_a_step_is_that_of_the_equations(streams):
    """Errors of many sizes, of which some are unknown; a batch averages gradients and changes."""
    rng, front, each = np.random.default_rng(0), () if streams is None else (streams,), streams or 1
    optimizer = rl.Intentional(ETA, DECAY)
    network = {"a": jnp.asarray(rng.normal(size=(2, 3))), "b": jnp.asarray(rng.normal(size=4))}
    # Before some hundred errors none is clipped.
    squares, size, errors, known = np.zeros(10), 0.0, 0.5, 5000
    state, none = optimizer.init(network, front), jnp.zeros(front)
    state = state._replace(errors=jnp.array(errors), known=jnp.int32(known))
    theta = np.concatenate([np.ravel(leaf) for leaf in network.values()])
    clipped = 0
    for t in range(1, 80):
        g, z = rng.normal(size=(2, each, 10)) * 10.0 ** rng.integers(-3, 3, 10)
        tells = rng.random(each) < 0.7
        delta = np.where(tells, rng.normal(size=each) * 10 ** (4 * rng.random() * (t > 40)), 0)

        def tree(rows):
            parts = np.split(rows, [6], axis=1)
            shaped = zip("ab", parts, [(2, 3), (4,)], strict=True)
            return {name: jnp.asarray(part.reshape(front + shape)) for name, part, shape in shaped}

        state = optimizer.remembering(state, tree(g))
        outcome = Outcome(
            none, none, Final(none, None), none, none, jnp.asarray(tells.reshape(front))
        )
        change = optimizer.update(
            state, network, tree(z), jnp.asarray(delta.reshape(front)), outcome
        )
        squares = 0.999 * squares + 0.001 * (g**2).mean(0)
        d = np.sqrt(squares / (1 - 0.999**t)) + 1e-8
        size = DECAY * size + (1 - DECAY) * (g**2 / d).sum(1).mean()
        if tells.any():
            known += 1
            errors = 0.9998 * errors + 0.0002 * (delta[tells] ** 2).mean()
        cap = 20 * np.sqrt(errors / (1 - 0.9998**known))
        step = ETA / np.sqrt(size / (1 - DECAY**t) * (z**2 / d).sum(1))
        moved = ((step * np.clip(delta, -cap, cap))[:, None] * z / d).mean(0)
        clipped += (abs(delta) > cap).any()
        theta, network, state = theta + moved, change.network, change.state
        found = np.concatenate([np.ravel(leaf) for leaf in network.values()])
        np.testing.assert_allclose(found, theta, rtol=1e-10, atol=1e-10)
        np.testing.assert_allclose(np.ravel(change.step_size), step, rtol=1e-10)
        np.testing.assert_allclose(change.norm, np.linalg.norm(moved), rtol=1e-10, atol=1e-12)
    assert clipped > 1


@pytest.mark.exact
@pytest.mark.usefixtures("standard_promotion")
def test_an_agent_keeps_the_mean_of_the_squares_of_its_gradients():
    """Without a trace decay the trace is the gradient."""
    agent = make_agent(rl.ValuePrediction(), trace_decay=0.0, optimizer=rl.Intentional(decay=0.0))
    state, (_, infos, traces) = run(agent, stream(20), kept=lambda state: state.trace)
    rows = np.concatenate([np.reshape(leaf, (20, -1)) for leaf in jax.tree.leaves(traces)], 1)
    weights = 0.001 * 0.999 ** np.arange(19, -1, -1)
    np.testing.assert_allclose(state.opt_state.squares, weights @ rows**2, rtol=1e-10)
    assert infos.step_size[0] == 0 < infos.step_size[1:].min()


def test_it_learns_to_predict():
    """The sum of a constant reward, with a discount of 0.9."""
    agent = make_agent(rl.ValuePrediction(), optimizer=rl.Intentional())
    assert float(rl.Intentional().init(make_agent().network, ()).errors) == 1
    ones, never = np.ones(3000), np.zeros(3000, bool)
    given = stream(3000)._replace(
        reward=ones, discount=ones, terminated=never, truncated=never, first=never
    )
    state, (predictions, *_) = run(agent, given)
    np.testing.assert_allclose(predictions[-100:].mean(), 10, rtol=0.1)
    assert int(state.skipped) == 0
