"""The agents: their updates are gradients of losses of whole episodes; their refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS
from tiers import fast, slow

import foretrace as ft
from foretrace import rl

pytestmark = [
    pytest.mark.exact,
    pytest.mark.usefixtures("standard_promotion", "allowed_rank_promotion"),
]

T, DISCOUNT, KEY = 5, 0.9, jax.random.key(0)
OBSERVATIONS = np.random.default_rng(0).normal(size=(T + 1, 2))
REWARDS = np.random.default_rng(1).normal(size=T)


@pytest.fixture(scope="module")
def allowed_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


def summing():
    """Return an optimiser that adds gradients up and moves nothing."""
    zeros = lambda tree: jax.tree.map(jnp.zeros_like, tree)  # noqa: E731
    return optax.GradientTransformation(
        zeros, lambda g, total, p: (zeros(g), jax.tree.map(jnp.add, total, g))
    )


def make_network(outputs, cell="lru", depth=1):
    return ft.Network(
        2, outputs, model_size=4, depth=depth, cell=CELLS[cell], key=jax.random.key(0)
    )


def start(observation=OBSERVATIONS[0]):
    return rl.Transition(observation, first=True)


def episode(
    agent, state, observations=OBSERVATIONS, rewards=REWARDS, *, terminated=True, discounts=None
):
    """Run an episode and the next one's first step; return actions, state and last information."""
    actions, brought = [], start(observations[0])
    for t in range(T):
        action, state, _ = agent.step(state, brought)
        actions.append(np.asarray(action))
        last = t == T - 1
        brought = rl.Transition(
            observations[0] if last else observations[t + 1],
            rewards[t],
            last and terminated,
            last and not terminated,
            discount=1.0 if discounts is None else discounts[t],
            final_observation=observations[T] if last else None,
        )
    _, state, info = agent.step(state, brought)
    return actions, state, info


def outputs_of(network, observations=OBSERVATIONS):
    """Return the outputs of an episode, open to the derivative through time as a whole."""
    return ft.forward(network, None, jnp.asarray(observations), rule=ft.BPTT)[0]


def returns(values, trace_decay, *, terminated=True, discounts=None, rewards=REWARDS):
    """Return the lambda-returns of an episode, by their definition: backwards from its end."""
    factors = DISCOUNT * (np.ones(T) if discounts is None else discounts)
    following = 0.0 if terminated else float(values[T])
    found = []
    for t in reversed(range(T)):
        value = (0.0 if terminated else float(values[T])) if t == T - 1 else float(values[t + 1])
        following = rewards[t] + factors[t] * ((1 - trace_decay) * value + trace_decay * following)
        found.append(following)
    return np.array(found[::-1])


def assert_same(got, want, tolerance=1e-10):
    for (path, g), w in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(g, w, rtol=0, atol=tolerance, err_msg=jax.tree_util.keystr(path))


EXACT = [
    ("lru", 1, ft.ONLINE.with_depth(1)),
    pytest.param("gru", 1, ft.RTRL, marks=pytest.mark.full),
    slow("lstm", 1, ft.ONLINE),
    slow("tanh", 1, ft.RTRL.with_depth(1)),
    pytest.param("lru", 2, ft.ONLINE.with_depth(2), marks=pytest.mark.full),
]


def exact_part(rule, grads):
    """Return the gradients that a rule gives exactly: without depth, all but before the cell."""
    return (
        grads if rule.credit is not None else (grads.blocks.cell, grads.blocks.glu, grads.decoder)
    )


@pytest.mark.full
@pytest.mark.parametrize(("trace_decay", "terminated"), [(0.7, False), (1.0, True), (1.0, False)])
@pytest.mark.parametrize(("cell", "depth", "rule"), EXACT)
def test_the_updates_of_an_episode_are_the_gradient_of_its_value_loss(
    cell, depth, rule, trace_decay, terminated
):
    """Frozen parameters: the sum of -delta * z is the gradient of 1/2 (G - v)^2, G constant."""
    network, discounts = make_network(1, cell, depth), np.array([1.0, 0.5, 0.0, 1.0, 0.8])
    options = {
        "rule": rule,
        "discount": DISCOUNT,
        "trace_decay": trace_decay,
        "optimizer": summing(),
    }
    agent = rl.Agent(network, rl.ValuePrediction(), **options)
    values, state, _ = episode(agent, agent.init(), terminated=terminated, discounts=discounts)
    expected = outputs_of(network)[:, 0]
    np.testing.assert_allclose(values, expected[:T], atol=1e-12)
    targets = returns(expected, trace_decay, terminated=terminated, discounts=discounts)

    def loss(network):
        return 0.5 * ((targets - outputs_of(network)[:T, 0]) ** 2).sum()

    assert_same(exact_part(rule, state.opt_state), exact_part(rule, jax.grad(loss)(network)))


@pytest.mark.full
@pytest.mark.parametrize("entropy", fast([0.0, 0.1]))
@pytest.mark.parametrize(("cell", "depth", "rule"), EXACT)
def test_the_updates_of_an_episode_are_policy_gradient_and_value_gradient(
    cell, depth, rule, entropy
):
    network = make_network(3, cell, depth)
    options = {"discount": DISCOUNT, "trace_decay": 1.0, "optimizer": summing()}
    agent = rl.Agent(
        network, rl.ActorCritic(actor_weight=0.3, entropy=entropy), rule=rule, **options
    )
    actions, state, _ = episode(agent, agent.init(jax.random.key(3)))
    assert len({int(a) for a in actions}) == 2
    outputs = np.asarray(outputs_of(network))
    errors = returns(outputs[:, 0], 1.0) - outputs[:T, 0]
    deltas = REWARDS + DISCOUNT * np.append(outputs[1:T, 0], 0.0) - outputs[:T, 0]
    # What enters the trace at step t is multiplied by all later errors.
    signed = np.sign(deltas) * errors

    def loss(network):
        outputs = outputs_of(network)[:T]
        log_policy = jax.nn.log_softmax(outputs[:, 1:])
        chosen = log_policy[jnp.arange(T), jnp.array(actions)]
        entropies = -(jnp.exp(log_policy) * log_policy).sum(-1)
        return -(errors @ (outputs[:, 0] + 0.3 * chosen) + entropy * signed @ entropies)

    assert_same(exact_part(rule, state.opt_state), exact_part(rule, jax.grad(loss)(network)))


@pytest.mark.full
def test_continuous_actions_are_samples_of_a_gaussian_whose_gradient_is_that_of_its_log_density():
    network = make_network(5)
    options = {"discount": DISCOUNT, "trace_decay": 1.0, "optimizer": summing()}
    method = rl.ActorCritic(action_size=2, entropy=0.1)
    agent = rl.Agent(network, method, rule=ft.ONLINE, **options)
    actions, state, _ = episode(agent, agent.init(jax.random.key(3)))
    outputs = np.asarray(outputs_of(network))
    errors = returns(outputs[:, 0], 1.0) - outputs[:T, 0]
    deltas = REWARDS + DISCOUNT * np.append(outputs[1:T, 0], 0.0) - outputs[:T, 0]

    def loss(network):
        value, mean, raw = jnp.split(outputs_of(network)[:T], [1, 3], axis=1)
        deviation = jnp.log1p(jnp.exp(raw)) + 1e-3
        away = (jnp.array(actions) - mean) / deviation
        log_density = (-0.5 * away**2 - jnp.log(deviation) - 0.5 * jnp.log(2 * jnp.pi)).sum(1)
        entropy = jnp.log(deviation).sum(1)
        return -(errors @ (value[:, 0] + log_density) + 0.1 * (np.sign(deltas) * errors) @ entropy)

    assert_same(
        exact_part(ft.ONLINE, state.opt_state), exact_part(ft.ONLINE, jax.grad(loss)(network))
    )

    def draw(key):
        return method.action(jnp.asarray(outputs[0]), method.noise(key, None, 5, jnp.float64))

    drawn = jax.vmap(draw)(jax.random.split(KEY, 4000))
    deviation = np.log1p(np.exp(outputs[0, 3:])) + 1e-3
    np.testing.assert_allclose(drawn.mean(0), outputs[0, 1:3], atol=0.1)
    np.testing.assert_allclose(drawn.std(0), deviation, rtol=0.05)
    with pytest.raises(ValueError, match="has 5 outputs, expected the value, and a mean .* 7"):
        rl.Agent(network, rl.ActorCritic(action_size=3), rule=ft.ONLINE)


@pytest.mark.full
@pytest.mark.parametrize("on_policy", [True, False])
def test_q_learning_and_sarsa_by_their_equations(on_policy):
    network, options = (
        make_network(2),
        {"discount": DISCOUNT, "trace_decay": 0.7, "optimizer": summing()},
    )
    agent = rl.Agent(network, rl.QLearning(0.9, on_policy=on_policy), rule=ft.ONLINE, **options)
    actions, state, _ = episode(agent, agent.init(jax.random.key(4)))
    q = np.asarray(outputs_of(network))[:T]
    greedy = [int(a) == int(q[t].argmax()) for t, a in enumerate(actions)]
    assert set(greedy[1:]) == {True, False}
    following = [q[t, actions[t]] if on_policy else q[t].max() for t in range(1, T)] + [0.0]
    deltas = [REWARDS[t] + DISCOUNT * following[t] - q[t, actions[t]] for t in range(T)]
    grads = [jax.grad(lambda n, t=t: outputs_of(n)[t, actions[t]])(network) for t in range(T)]
    trace = total = jax.tree.map(jnp.zeros_like, network)
    for t in range(T):
        decay = DISCOUNT * 0.7 if on_policy or greedy[t] else 0.0
        trace = jax.tree.map(lambda z, g, decay=decay: decay * z + g, trace, grads[t])
        total = jax.tree.map(lambda s, z, t=t: s - deltas[t] * z, total, trace)
    assert_same(exact_part(ft.ONLINE, state.opt_state), exact_part(ft.ONLINE, total))


@pytest.mark.parametrize("name", fast(["ObGD", "sgd"]))
def test_a_batch_is_the_mean_of_its_streams(name):
    """Streams end their episodes at different steps."""
    network, optimizer = make_network(1), rl.ObGD() if name == "ObGD" else optax.sgd(0.1)
    options = {"rule": ft.ONLINE, "discount": DISCOUNT, "optimizer": optimizer}
    single = rl.Agent(network, rl.ValuePrediction(), **options)
    batch = rl.Agent(network, rl.ValuePrediction(), batch_size=2, **options)
    observations = np.random.default_rng(5).normal(size=(4, 2, 2))
    rewards, ends = (
        np.random.default_rng(6).normal(size=(4, 2)),
        np.array([[0, 0], [1, 0], [0, 1], [0, 0]], bool),
    )
    state = batch.init()
    for t in range(4):
        # One step is compared at a time, since the streams share the updates of all.
        alone = [stream_of(state, i) for i in range(2)]
        before = state.network
        brought = (rewards[t - 1], ends[t - 1])
        together = start(observations[t]) if t == 0 else rl.Transition(observations[t], *brought)
        _, state, info = batch.step(state, together)
        found = [
            single.step(one, start(x) if t == 0 else rl.Transition(x, brought[0][i], brought[1][i]))
            for i, (one, x) in enumerate(zip(alone, observations[t], strict=True))
        ]
        np.testing.assert_allclose(info.td_error, [one.td_error for _, _, one in found], atol=1e-12)
        moved = [jax.tree.map(jnp.subtract, one.network, before) for _, one, _ in found]
        assert_same(state.network, jax.tree.map(lambda p, a, b: p + (a + b) / 2, before, *moved))
        if t == 0:  # before any update
            for i, (_, one, _) in enumerate(found):
                parts = [(s.carry, s.trace, s.value, s.outcome) for s in (stream_of(state, i), one)]
                assert_same(*parts)


def stream_of(state, i):
    """Return the state of an agent of one environment, from a batch's state."""
    streams = ("trace", "value", "outcome", "awaited")
    of_stream = {name: jax.tree.map(lambda leaf: leaf[i], getattr(state, name)) for name in streams}
    return state._replace(**of_stream, carry=jax.tree.map(lambda leaf: leaf[:, i], state.carry))


def make_agent(**options):
    network = make_network(3)
    defaults = {"rule": ft.ONLINE, "normalize_observations": True, "scale_rewards": True}
    return rl.Agent(network, rl.ActorCritic(entropy=0.01), **(defaults | options))


@pytest.mark.full
def test_a_step_compiles_once():
    agent, traced = make_agent(), []
    compiled = agent._step
    agent._step = jax.jit(lambda *given: traced.append(1) or compiled(*given))
    _, state, _ = episode(agent, agent.init())
    episode(agent, state, terminated=False)
    assert len(traced) == 1


@pytest.mark.full
def test_an_episode_starts_anew():
    network = make_network(1)
    agent = rl.Agent(network, rl.ValuePrediction(), rule=ft.ONLINE, optimizer=summing())
    _, after, _ = episode(agent, agent.init())
    _, fresh, _ = agent.step(agent.init(), start())
    assert_same((after.carry, after.trace, after.value), (fresh.carry, fresh.trace, fresh.value))


@pytest.mark.full
def test_a_first_observation_ends_an_episode_whose_last_action_is_not_learned_from():
    agent = frozen(rl.ValuePrediction())
    _, state, _ = agent.step(agent.init(), start(OBSERVATIONS[1]))
    _, again, info = agent.step(state, start())
    _, fresh, _ = agent.step(agent.init(), start())
    assert float(info.td_error) == 0 and int(again.step) == 0
    assert_same((again.carry, again.trace, again.value), (fresh.carry, fresh.trace, fresh.value))


@pytest.mark.full
def test_what_is_not_finite_is_refused():
    agent = make_agent()
    _, state, _ = agent.step(agent.init(), start())
    before = jax.tree.map(np.asarray, jax.tree.leaves(state._replace(key=None)))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="reward holds"):
            agent.step(state, rl.Transition(OBSERVATIONS[1], bad))
        with pytest.raises(ValueError, match="observation holds"):
            agent.step(state, rl.Transition([0.0, bad], 1.0))
    step = jax.jit(agent.step)
    for discount in (1.0, np.nan):
        reward = np.nan if discount == 1 else 1.0
        _, after, info = step(state, rl.Transition(OBSERVATIONS[1], reward, discount=discount))
        assert int(after.skipped) == 1 and float(info.td_error) == 0 == int(after.step)
        assert bool(info.accepted) and bool(after.awaited)
    _, left, info = step(state, rl.Transition(np.full(2, np.nan), 1.0))
    assert int(left.skipped) == 1 and not bool(info.accepted)
    assert not bool(left.awaited) and not bool(left.outcome.known)
    kept = left._replace(
        key=None, skipped=state.skipped, outcome=state.outcome, awaited=state.awaited
    )
    for a, b in zip(before, jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.full
def test_an_episode_ends_though_the_reward_of_another_stream_is_refused():
    options = {"optimizer": summing(), "scale_rewards": True, "batch_size": 2}
    agent = rl.Agent(make_network(1), rl.ValuePrediction(), rule=ft.ONLINE, **options)
    _, state, _ = agent.step(agent.init(), start(OBSERVATIONS[[0, 0]]))
    for t in (1, 2):
        _, state, _ = agent.step(state, rl.Transition(OBSERVATIONS[[t, t]], REWARDS[:2]))
    bad, ended = np.array([np.nan, 1.0]), np.array([False, True])
    _, after, info = jax.jit(agent.step)(state, rl.Transition(OBSERVATIONS[[0, 0]], bad, ended))
    assert int(after.skipped) == 1 and not np.asarray(info.td_error).any()
    _, fresh, _ = agent.step(agent.init(), start(OBSERVATIONS[[0, 0]]))
    began, going, fresh = stream_of(after, 1), stream_of(after, 0), stream_of(fresh, 1)
    assert_same((began.carry, began.trace, began.value), (fresh.carry, fresh.trace, fresh.value))
    assert_same(after.opt_state, state.opt_state)
    assert not np.allclose(going.value, began.value)
    assert float(after.rewards.total[0]) != 0 == float(after.rewards.total[1])


def refused(agent, state, *brought):
    """Let a compiled program refuse an observation that is not finite."""
    front = () if agent.batch_size is None else (agent.batch_size,)
    nothing = np.full((*front, 2), np.nan)
    transition = rl.Transition(nothing, *brought) if brought else start(nothing)
    step = jax.jit(lambda state, x: agent.step(state, transition._replace(observation=x)))
    _, state, info = step(state, nothing)
    assert not bool(info.accepted)
    return state


@pytest.mark.full
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_an_episode_ends_though_the_next_observation_is_refused(first, compiled):
    """The episode's last reward is still learned from; rewards behind the gap are left out."""
    agent = rl.Agent(make_network(1), rl.ValuePrediction(), rule=ft.ONLINE, optimizer=summing())
    state, ended = agent.init(), ()
    if not first:
        _, state, _ = agent.step(state, start())
        _, state, _ = agent.step(state, rl.Transition(OBSERVATIONS[1], REWARDS[0]))
        ended = (REWARDS[1], True)
    left = refused(agent, refused(agent, state, *ended), 5.0)
    assert int(left.skipped) == 2
    step = jax.jit(agent.step) if compiled else agent.step
    _, after, info = step(left, rl.Transition(OBSERVATIONS[0], -5.0))
    expected = start() if first else rl.Transition(OBSERVATIONS[0], *ended)
    _, expected, learned = agent.step(state, expected)
    assert_same(after._replace(key=None, skipped=0), expected._replace(key=None, skipped=0))
    np.testing.assert_allclose(info.td_error, learned.td_error, atol=1e-12)
    assert first or float(info.td_error) != 0


@pytest.mark.full
def test_errors_say_what_is_wrong():
    agent = make_agent()
    _, state, _ = agent.step(agent.init(), start())
    seen = OBSERVATIONS[1]
    wrong = [
        (ValueError, "final_observation", rl.Transition(seen, 0.0, truncated=True)),
        (ValueError, r"shape \(3,\), expected \(2,\)", rl.Transition(np.zeros(3), 0.0)),
        (ValueError, r"shape \(1,\)", rl.Transition(seen, [0.0])),
        (ValueError, "has no reward.*first=True", rl.Transition(seen)),
        (TypeError, "terminated is int64, expected booleans", rl.Transition(seen, 0.0, 1)),
        (TypeError, "first is int64, expected booleans", rl.Transition(seen, 0.0, first=1)),
        (ValueError, r"discount holds 1\.5", rl.Transition(seen, 0.0, discount=1.5)),
        (TypeError, "transition is a ndarray, expected foretrace.rl.Transition", seen),
    ]
    for error, match, transition in wrong:
        with pytest.raises(error, match=match):
            agent.step(state, transition)
    with pytest.raises(TypeError, match="state is a tuple"):
        agent.step((), start())
    with pytest.raises(ValueError, match="expected 1, the value"):
        rl.Agent(make_network(2), rl.ValuePrediction(), rule=ft.ONLINE)
    with pytest.raises(TypeError, match=r"method=<class .*must be foretrace.rl.ActorCritic"):
        rl.Agent(make_network(2), rl.Agent, rule=ft.ONLINE)
    with pytest.raises(ValueError, match=r"trace_decay=1\.1"):
        make_agent(trace_decay=1.1)
    with pytest.raises(ValueError, match="action_size=0"):
        rl.ActorCritic(action_size=0)
    with pytest.raises(ValueError, match="entropy=-1"):
        rl.ActorCritic(entropy=-1)
    with pytest.raises(ValueError, match="kappa=0"):
        rl.ObGD(kappa=0)


def test_a_bounded_step_moves_the_value_by_less_than_its_error():
    network = make_network(1)
    options = {"discount": 0.0, "trace_decay": 0.0, "optimizer": rl.ObGD(10.0, 2.0)}
    agent = rl.Agent(network, rl.ValuePrediction(), rule=ft.ONLINE, **options)
    value, state, _ = agent.step(agent.init(), start())
    _, state, info = agent.step(state, rl.Transition(OBSERVATIONS[0], 100.0, terminated=True))
    moved = float(outputs_of(state.network, OBSERVATIONS[:1])[0, 0] - value)
    assert 0 < moved < float(info.td_error)


def test_moments_are_those_of_all_rows():
    from foretrace.rl._moments import Moments

    rows = np.random.default_rng(0).normal(3.0, 2.0, (12, 4))
    moments = Moments.zero((4,), jnp.float64)
    for part in np.split(rows, [1, 2, 7]):
        moments = moments.including(jnp.asarray(part))
    np.testing.assert_allclose(moments.mean, rows.mean(0), atol=1e-12)
    np.testing.assert_allclose(moments.variance, rows.var(0, ddof=1), atol=1e-12)


@pytest.mark.full
def test_moments_follow_the_spread_of_rows_beyond_what_float32_counts():
    from foretrace.rl._moments import Moments

    rows = jnp.asarray(np.random.default_rng(0).normal(3.0, 2.0, (200, 1)), jnp.float32)

    @jax.jit
    def run(moments):
        return jax.lax.fori_loop(0, 10 * 2**14, lambda i, moments: moments.including(rows), moments)

    # 2^15 thousand rows, about twice what float32 counts; what came before them is forgotten.
    moments = run(Moments(*(jnp.array(x, jnp.float32) for x in (1000.0, [0.0], [9e3]))))
    assert float(moments.rows) == 1e6
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-3)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-3)
    # Row by row, beside a million rows of the same spread: neither grows nor shrinks.
    one_by_one = jax.jit(
        lambda m: jax.lax.fori_loop(0, 400_000, lambda i, m: m.including(rows[i % 200][None]), m)
    )
    np.testing.assert_allclose(one_by_one(moments).variance, rows.var(0), rtol=0.01)


def frozen(method, **options):
    """Return an agent whose optimiser sums gradients, so that learning can be read."""
    defaults = {"rule": ft.ONLINE, "discount": DISCOUNT, "trace_decay": 0.7, "optimizer": summing()}
    outputs = 2 if isinstance(method, rl.QLearning) else 1
    return rl.Agent(make_network(outputs), method, **(defaults | options))


@pytest.mark.parametrize("compiled", fast([False, True]))
def test_a_refused_observation_joins_no_two_steps(compiled):
    """Within an episode, steps around it are learned as if the stream had a gap there."""
    agent = frozen(rl.ValuePrediction())
    step = jax.jit(agent.step) if compiled else agent.step
    _, state, _ = agent.step(agent.init(), start())
    _, state, _ = step(state, rl.Transition(OBSERVATIONS[1], REWARDS[0]))
    gap = refused(agent, state, REWARDS[1])
    assert int(gap.skipped) == 1
    # Its action is not one of the agent's; neither it nor the reward that follows belongs to an
    # observation.
    _, after, info = step(gap, rl.Transition(OBSERVATIONS[2], 100.0))
    assert float(info.td_error) == 0
    assert_same(after.opt_state, state.opt_state)
    _, last, info = step(after, rl.Transition(OBSERVATIONS[3], REWARDS[2]))
    values = [float(v) for v in outputs_of(agent.network, OBSERVATIONS[[0, 1, 2, 3]])[:, 0]]
    delta = REWARDS[2] + DISCOUNT * values[3] - values[2]
    np.testing.assert_allclose(info.td_error, delta, atol=1e-12)
    grads = jax.grad(lambda n: outputs_of(n, OBSERVATIONS[:3])[2, 0])(agent.network)
    learned = jax.tree.map(jnp.subtract, last.opt_state, state.opt_state)
    assert_same(
        exact_part(ft.ONLINE, learned),
        exact_part(ft.ONLINE, jax.tree.map(lambda g: -delta * g, grads)),
    )


@pytest.mark.full
def test_the_end_of_one_stream_survives_a_refused_step_of_a_batch():
    agent = frozen(rl.ValuePrediction(), batch_size=2)
    _, state, _ = agent.step(agent.init(), start(OBSERVATIONS[:2]))
    gap = refused(agent, state, REWARDS[:2], np.array([True, False]))
    _, _, info = agent.step(gap, rl.Transition(OBSERVATIONS[2:4], 7.0))
    errors = np.asarray(info.td_error)
    np.testing.assert_allclose(errors[0], REWARDS[0] - state.value[0], atol=1e-12)
    assert errors[1] == 0


@pytest.mark.full
def test_sarsa_bootstraps_a_cut_episode_by_the_action_that_its_policy_would_choose():
    """With an epsilon of 1 it is random, so the mean over draws is the mean over actions."""
    found = {}
    for on_policy in (True, False):
        agent = frozen(rl.QLearning(1.0, on_policy=on_policy))
        values = np.asarray(outputs_of(agent.network, OBSERVATIONS[[0, 5]]))[1]
        assert np.ptp(values) > 1e-3
        _, state, _ = agent.step(agent.init(), start())
        cut = rl.Transition(OBSERVATIONS[0], 0.0, truncated=True, final_observation=OBSERVATIONS[5])
        draws = [
            agent.step(state._replace(key=jax.random.key(i)), cut)[2].td_error for i in range(40)
        ]
        found[on_policy] = (
            np.array([float(error) for error in draws]) + float(state.value)
        ) / DISCOUNT
        hits = np.abs(found[on_policy][:, None] - values).min(axis=1)
        np.testing.assert_allclose(hits, 0, atol=1e-12)
    assert 10 < (found[True] > values.mean()).sum() < 30
    np.testing.assert_allclose(found[False], values.max(), atol=1e-12)


@pytest.mark.full
def test_the_error_of_a_cut_episode_under_sarsa_by_hand():
    agent = frozen(rl.QLearning(0.0, on_policy=True))
    q = np.asarray(outputs_of(agent.network))
    actions, _, info = episode(agent, agent.init(), terminated=False)
    expected = REWARDS[-1] + DISCOUNT * q[T].max() - q[T - 1, actions[-1]]
    np.testing.assert_allclose(info.td_error, expected, atol=1e-12)
