"""The agents: their updates are gradients of losses of whole episodes, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS
from tiers import fast, slow

import foretrace as ft
from foretrace import rl

pytestmark = pytest.mark.usefixtures("standard_promotion", "allowed_rank_promotion")

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
    return optax.GradientTransformation(zeros, lambda g, total, p: (zeros(g), jax.tree.map(jnp.add, total, g)))


def make_network(outputs, cell="lru", depth=1):
    return ft.Network(2, outputs, model_size=4, depth=depth, cell=CELLS[cell], key=jax.random.key(0))


def episode(agent, state, observations=OBSERVATIONS, rewards=REWARDS, *, terminated=True, discounts=None):
    """Run an episode and the first step of the next; return the actions and the state."""
    actions = []
    for t in range(T):
        action, state = agent.act(state, observations[t])
        actions.append(np.asarray(action))
        last = t == T - 1
        discount = 1.0 if discounts is None else discounts[t]
        state, _ = agent.learn(
            state,
            rewards[t],
            last and terminated,
            last and not terminated,
            discount=discount,
            final_observation=observations[T] if last else None,
        )
    _, state = agent.act(state, observations[0])
    return actions, state


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
    """Return the gradients that a rule gives exactly: without credit in depth, all but those in front of the cell."""
    return grads if rule.credit is not None else (grads.blocks.cell, grads.blocks.glu, grads.decoder)


@pytest.mark.full
@pytest.mark.parametrize(("trace_decay", "terminated"), [(0.7, False), (1.0, True), (1.0, False)])
@pytest.mark.parametrize(("cell", "depth", "rule"), EXACT)
def test_the_updates_of_an_episode_are_the_gradient_of_its_value_loss(cell, depth, rule, trace_decay, terminated):
    """With frozen parameters: the sum of -delta * z is the gradient of 1/2 (G - v)^2, with the return G constant."""
    network, discounts = make_network(1, cell, depth), np.array([1.0, 0.5, 0.0, 1.0, 0.8])
    options = {"rule": rule, "discount": DISCOUNT, "trace_decay": trace_decay, "optimizer": summing()}
    agent = rl.ValuePrediction(network, **options)
    values, state = episode(agent, agent.init(), terminated=terminated, discounts=discounts)
    expected = outputs_of(network)[:, 0]
    np.testing.assert_allclose(values, expected[:T], atol=1e-12)
    targets = returns(expected, trace_decay, terminated=terminated, discounts=discounts)

    def loss(network):
        return 0.5 * ((targets - outputs_of(network)[:T, 0]) ** 2).sum()

    assert_same(exact_part(rule, state.opt_state), exact_part(rule, jax.grad(loss)(network)))


@pytest.mark.full
@pytest.mark.parametrize("entropy", fast([0.0, 0.1]))
@pytest.mark.parametrize(("cell", "depth", "rule"), EXACT)
def test_the_updates_of_an_episode_are_policy_gradient_and_value_gradient(cell, depth, rule, entropy):
    network = make_network(3, cell, depth)
    options = {"discount": DISCOUNT, "trace_decay": 1.0, "actor_weight": 0.3, "optimizer": summing()}
    agent = rl.ActorCritic(network, rule=rule, entropy=entropy, **options)
    actions, state = episode(agent, agent.init(jax.random.key(3)))
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
    agent = rl.ActorCritic(network, rule=ft.ONLINE, action_size=2, entropy=0.1, **options)
    actions, state = episode(agent, agent.init(jax.random.key(3)))
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

    assert_same(exact_part(ft.ONLINE, state.opt_state), exact_part(ft.ONLINE, jax.grad(loss)(network)))
    drawn = jax.vmap(lambda key: agent._action(outputs[0], agent._noise(key, None)))(jax.random.split(KEY, 4000))
    deviation = np.log1p(np.exp(outputs[0, 3:])) + 1e-3
    np.testing.assert_allclose(drawn.mean(0), outputs[0, 1:3], atol=0.1)
    np.testing.assert_allclose(drawn.std(0), deviation, rtol=0.05)
    with pytest.raises(ValueError, match="has 5 outputs, expected the value, and a mean .* 7"):
        rl.ActorCritic(network, rule=ft.ONLINE, action_size=3)


@pytest.mark.full
@pytest.mark.parametrize("on_policy", [True, False])
def test_q_learning_and_sarsa_by_their_equations(on_policy):
    network, options = make_network(2), {"discount": DISCOUNT, "trace_decay": 0.7, "optimizer": summing()}
    agent = rl.QLearning(network, rule=ft.ONLINE, epsilon=0.9, on_policy=on_policy, **options)
    actions, state = episode(agent, agent.init(jax.random.key(4)))
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


@pytest.mark.full
def test_without_a_trace_it_is_td_0():
    network = make_network(1)
    agent = rl.ValuePrediction(network, rule=ft.ONLINE, discount=DISCOUNT, trace_decay=0.0, optimizer=optax.sgd(0.1))
    state = agent.init()
    value, state = agent.act(state, OBSERVATIONS[0])
    state, _ = agent.learn(state, REWARDS[0])
    _, after = agent.act(state, OBSERVATIONS[1])
    # Both values are those of the parameters before the update.
    delta = REWARDS[0] + DISCOUNT * outputs_of(network)[1, 0] - value
    gradient = jax.grad(lambda n: outputs_of(n, OBSERVATIONS[:1])[0, 0])(network)
    assert_same(after.network, jax.tree.map(lambda p, g: p + 0.1 * delta * g, network, gradient))
    np.testing.assert_allclose(after.info.td_error, delta, atol=1e-12)
    # In the next error, too, both values are of the same parameters: those after this update.
    noted, _ = agent.learn(after, REWARDS[1])
    _, last = agent.act(noted, OBSERVATIONS[2])
    ahead = [
        ft.forward(after.network, before.carry._replace(e=None), jnp.asarray(OBSERVATIONS[t : t + 1]))[0][0, 0]
        for t, before in ((1, state), (2, after))
    ]
    np.testing.assert_allclose(last.info.td_error, REWARDS[1] + DISCOUNT * ahead[1] - ahead[0], atol=1e-12)


@pytest.mark.parametrize("name", fast(["ObGD", "sgd"]))
def test_a_batch_is_the_mean_of_its_streams(name):
    """Streams end their episodes at different steps."""
    network, optimizer = make_network(1), rl.ObGD() if name == "ObGD" else optax.sgd(0.1)
    options = {"rule": ft.ONLINE, "discount": DISCOUNT, "optimizer": optimizer}
    single, batch = rl.ValuePrediction(network, **options), rl.ValuePrediction(network, batch_size=2, **options)
    observations = np.random.default_rng(5).normal(size=(4, 2, 2))
    rewards, ends = np.random.default_rng(6).normal(size=(4, 2)), np.array([[0, 0], [1, 0], [0, 1], [0, 0]], bool)
    state = batch.init()
    for t in range(4):
        # One step is compared at a time, since the streams share the updates of all.
        alone = [stream_of(state, i) for i in range(2)]
        before = state.network
        _, state = batch.act(state, observations[t])
        alone = [single.act(one, x)[1] for one, x in zip(alone, observations[t], strict=True)]
        np.testing.assert_allclose(state.info.td_error, [one.info.td_error for one in alone], atol=1e-12)
        moved = [jax.tree.map(jnp.subtract, one.network, before) for one in alone]
        assert_same(state.network, jax.tree.map(lambda p, a, b: p + (a + b) / 2, before, *moved))
        if t == 0:  # before any update
            for i, one in enumerate(alone):
                parts = [(s.carry, s.trace, s.value, s.outcome) for s in (stream_of(state, i), one)]
                assert_same(*parts)
        state, _ = batch.learn(state, rewards[t], ends[t])


def stream_of(state, i):
    """Return the state of an agent of one environment, from that of a batch."""
    streams = ("trace", "value", "outcome")
    of_stream = {name: jax.tree.map(lambda leaf: leaf[i], getattr(state, name)) for name in streams}
    info = state.info._replace(**{name: getattr(state.info, name)[i] for name in ("td_error", "value", "trace_norm")})
    info = info._replace(step_size=info.step_size[i], sensitivity_norm=jnp.zeros(()))
    return state._replace(**of_stream, carry=jax.tree.map(lambda leaf: leaf[:, i], state.carry), info=info)


def make_agent(**options):
    network = make_network(3)
    defaults = {"rule": ft.ONLINE, "entropy": 0.01, "normalize_observations": True, "scale_rewards": True}
    return rl.ActorCritic(network, **(defaults | options))


@pytest.mark.full
def test_a_saved_agent_goes_on_bit_for_bit(tmp_path):
    agent = make_agent()
    _, state = episode(agent, agent.init(jax.random.key(1)))
    state, _ = agent.learn(state, 0.5)
    ft.save(tmp_path / "agent", state)
    loaded = ft.load(tmp_path / "agent", agent)
    (first, after), (again, resumed) = (episode(agent, s) for s in (state, loaded))
    np.testing.assert_array_equal(first, again)
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(resumed), strict=True):
        assert bool((a == b).all())


@pytest.mark.full
def test_a_step_compiles_once():
    agent, traced = make_agent(), []
    agent._act = jax.jit(lambda *given: traced.append(1) or agent._traced_act(*given))
    _, state = episode(agent, agent.init())
    episode(agent, state, terminated=False)
    assert len(traced) == 1


@pytest.mark.full
def test_an_episode_starts_anew():
    network = make_network(1)
    agent = rl.ValuePrediction(network, rule=ft.ONLINE, optimizer=summing())
    _, after = episode(agent, agent.init())
    _, fresh = agent.act(agent.init(), OBSERVATIONS[0])
    assert_same((after.carry, after.trace, after.value), (fresh.carry, fresh.trace, fresh.value))


@pytest.mark.full
def test_what_is_not_finite_is_refused():
    agent = make_agent()
    _, state = agent.act(agent.init(), OBSERVATIONS[0])
    before = jax.tree.map(np.asarray, jax.tree.leaves(state._replace(key=None)))
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="reward holds"):
            agent.learn(state, bad)
        with pytest.raises(ValueError, match="observation holds"):
            agent.act(state, [0.0, bad])
    after, _ = jax.jit(lambda state: agent.learn(state, jnp.nan * state.value))(state)
    assert int(after.skipped) == 1 and not bool(after.outcome.known)
    _, refused = jax.jit(lambda state: agent.act(state, jnp.full(2, jnp.nan) + state.value))(state)
    assert int(refused.skipped) == 1 and not bool(refused.info.accepted)
    assert not bool(refused.outcome.awaited)
    kept = refused._replace(key=None, skipped=state.skipped, info=state.info, outcome=state.outcome)
    for a, b in zip(before, jax.tree.leaves(kept), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.full
def test_an_episode_ends_though_the_reward_of_another_stream_is_refused():
    agent = rl.ValuePrediction(make_network(1), rule=ft.ONLINE, optimizer=summing(), scale_rewards=True, batch_size=2)
    state = agent.init()
    for t in range(2):
        _, state = agent.act(state, OBSERVATIONS[[t, t]])
        state, _ = agent.learn(state, REWARDS[:2])
    _, state = agent.act(state, OBSERVATIONS[[2, 2]])
    bad, ended = np.array([np.nan, 1.0]), np.array([False, True])
    noted, _ = jax.jit(lambda state: agent.learn(state, bad + 0 * state.value, ended))(state)
    assert int(noted.skipped) == 1 and not noted.outcome.known.any()
    _, after = agent.act(noted, OBSERVATIONS[[0, 0]])
    _, fresh = agent.act(agent.init(), OBSERVATIONS[[0, 0]])
    began, going, fresh = stream_of(after, 1), stream_of(after, 0), stream_of(fresh, 1)
    assert_same((began.carry, began.trace, began.value), (fresh.carry, fresh.trace, fresh.value))
    assert_same(after.opt_state, state.opt_state)
    assert not np.allclose(going.value, began.value)
    assert float(after.rewards.total[0]) != 0 == float(after.rewards.total[1])


@pytest.mark.full
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_an_episode_ends_though_the_next_act_is_refused(first, compiled):
    """After a refused observation, `learn` changes nothing; the last reward of an episode is still learned from."""
    agent = rl.ValuePrediction(make_network(1), rule=ft.ONLINE, optimizer=summing())
    state = agent.init()
    if not first:
        for t in range(2):
            _, state = agent.act(state, OBSERVATIONS[t])
            state, _ = agent.learn(state, REWARDS[t], terminated=t == 1)
    _, refused = jax.jit(lambda state: agent.act(state, jnp.nan + state.value + jnp.zeros(2)))(state)
    assert int(refused.skipped) == 1
    note = jax.jit(agent.learn) if compiled else agent.learn
    for reward in (5.0, -5.0):
        refused, _ = note(refused, reward)
    _, after = agent.act(refused, OBSERVATIONS[0])
    _, expected = agent.act(state, OBSERVATIONS[0])
    assert_same(after._replace(key=None, skipped=0), expected._replace(key=None, skipped=0))
    assert first or float(after.info.td_error) != 0


@pytest.mark.full
def test_errors_say_what_is_wrong():
    agent = make_agent()
    _, state = agent.act(agent.init(), OBSERVATIONS[0])
    with pytest.raises(ValueError, match="final_observation"):
        agent.learn(state, 0.0, truncated=True)
    with pytest.raises(ValueError, match=r"shape \(3,\), expected \(2,\)"):
        agent.act(state, np.zeros(3))
    with pytest.raises(ValueError, match=r"shape \(1,\)"):
        agent.learn(state, [0.0])
    with pytest.raises(TypeError, match="expected booleans"):
        agent.learn(state, 0.0, 1)
    with pytest.raises(ValueError, match=r"discount holds 1\.5"):
        agent.learn(state, 0.0, discount=1.5)
    with pytest.raises(ValueError, match="expected 1, the value"):
        rl.ValuePrediction(make_network(2), rule=ft.ONLINE)
    with pytest.raises(ValueError, match=r"trace_decay=1\.1"):
        make_agent(trace_decay=1.1)
    with pytest.raises(ValueError, match="kappa=0"):
        rl.ObGD(kappa=0)


def test_a_bounded_step_moves_the_value_by_less_than_its_error():
    network = make_network(1)
    agent = rl.ValuePrediction(network, rule=ft.ONLINE, discount=0.0, trace_decay=0.0, optimizer=rl.ObGD(10.0, 2.0))
    value, state = agent.act(agent.init(), OBSERVATIONS[0])
    state, _ = agent.learn(state, 100.0, terminated=True)
    _, state = agent.act(state, OBSERVATIONS[0])
    moved = float(outputs_of(state.network, OBSERVATIONS[:1])[0, 0] - value)
    assert 0 < moved < float(state.info.td_error)


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
    one_by_one = jax.jit(lambda m: jax.lax.fori_loop(0, 400_000, lambda i, m: m.including(rows[i % 200][None]), m))
    np.testing.assert_allclose(one_by_one(moments).variance, rows.var(0), rtol=0.01)


@pytest.mark.full
@pytest.mark.parametrize(
    "rule",
    [ft.RESERVOIR, ft.TRUNCATED, ft.HYBRID, ft.BPTT, ft.UORO, ft.ONLINE.with_depth(1).with_modules(2)],
    ids=str,
)
def test_every_rule_runs_in_a_batch(rule):
    agent = rl.ActorCritic(make_network(3, depth=2), rule=rule, batch_size=3)
    state = agent.init(jax.random.key(1))
    for t in range(3):
        _, state = agent.act(state, np.stack([OBSERVATIONS[t]] * 3))
        state, info = agent.learn(state, REWARDS[t], np.array([False, True, False]))
    assert bool(info.accepted) and int(state.step) == 2 and float(info.update_norm) > 0


def frozen(method, **options):
    """Return an agent whose optimiser adds gradients up, so that what it has learned can be read."""
    defaults = {"rule": ft.ONLINE, "discount": DISCOUNT, "trace_decay": 0.7, "optimizer": summing()}
    return method(make_network(2 if method is rl.QLearning else 1), **(defaults | options))


def refused(agent, state):
    """Let a compiled program refuse an observation that is not finite."""
    return jax.jit(lambda state: agent.act(state, jnp.nan + 0 * state.value[..., None] + jnp.zeros(2)))(state)[1]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_refused_observation_joins_no_two_steps(compiled):
    """Within an episode, the steps before and after it are learned from as if the stream had a gap there."""
    agent = frozen(rl.ValuePrediction)
    note = jax.jit(agent.learn) if compiled else agent.learn
    state = agent.init()
    for t in range(2):
        _, state = agent.act(state, OBSERVATIONS[t])
        state, _ = note(state, REWARDS[t])
    gap = refused(agent, state)
    assert int(gap.skipped) == 1
    # Its action is not one of the agent's; neither it nor the reward that follows belongs to an observation.
    gap, _ = note(gap, 100.0)
    _, after = agent.act(gap, OBSERVATIONS[2])
    assert float(after.info.td_error) == 0
    assert_same(after.opt_state, state.opt_state)
    after, _ = note(after, REWARDS[2])
    _, last = agent.act(after, OBSERVATIONS[3])
    values = [float(v) for v in outputs_of(agent.network, OBSERVATIONS[[0, 1, 2, 3]])[:, 0]]
    delta = REWARDS[2] + DISCOUNT * values[3] - values[2]
    np.testing.assert_allclose(last.info.td_error, delta, atol=1e-12)
    grads = jax.grad(lambda n: outputs_of(n, OBSERVATIONS[:3])[2, 0])(agent.network)
    learned = jax.tree.map(jnp.subtract, last.opt_state, state.opt_state)
    assert_same(exact_part(ft.ONLINE, learned), exact_part(ft.ONLINE, jax.tree.map(lambda g: -delta * g, grads)))


@pytest.mark.full
def test_an_episode_that_ends_behind_a_refused_observation_ends():
    agent = frozen(rl.ValuePrediction)
    _, state = agent.act(agent.init(), OBSERVATIONS[0])
    state, _ = agent.learn(state, REWARDS[0])
    ended, _ = agent.learn(refused(agent, state), 1.0, terminated=True)
    _, after = agent.act(ended, OBSERVATIONS[0])
    _, fresh = agent.act(agent.init(), OBSERVATIONS[0])
    assert_same((after.carry, after.trace, after.value), (fresh.carry, fresh.trace, fresh.value))
    assert float(after.info.td_error) == 0


def test_each_action_has_one_outcome():
    agent = frozen(rl.ValuePrediction)
    _, state = agent.act(agent.init(), OBSERVATIONS[0])
    once, _ = agent.learn(state, REWARDS[0])
    with pytest.raises(ValueError, match="learn.. was called twice for one action.*act"):
        agent.learn(once, REWARDS[1])
    # Inside a program the first one is kept, and the end of the episode is not overlooked.
    twice, _ = jax.jit(agent.learn)(once, REWARDS[1])
    assert_same(twice.outcome, once.outcome)
    ended, _ = jax.jit(agent.learn)(once, REWARDS[1], True)
    assert bool(ended.outcome.done) and not bool(ended.outcome.known)


@pytest.mark.full
def test_one_stream_of_a_batch_may_wait_while_another_goes_on():
    agent = frozen(rl.ValuePrediction, batch_size=2)
    _, state = agent.act(agent.init(), OBSERVATIONS[:2])
    state, _ = agent.learn(state, REWARDS[:2], np.array([True, False]))
    with pytest.raises(ValueError, match="twice"):
        agent.learn(state, REWARDS[:2])
    _, state = agent.act(refused(agent, state), OBSERVATIONS[2:4])
    errors = np.asarray(state.info.td_error)
    assert errors[0] != 0 == errors[1]


def test_sarsa_bootstraps_a_cut_episode_by_the_action_that_its_policy_would_choose():
    """With an epsilon of 1 it is random, so the mean over draws is that of the actions, and not the best of them."""
    found = {}
    for on_policy in (True, False):
        agent = frozen(rl.QLearning, epsilon=1.0, on_policy=on_policy)
        values = np.asarray(outputs_of(agent.network, OBSERVATIONS[[0, 5]]))[1]
        assert np.ptp(values) > 1e-3
        _, state = agent.act(agent.init(), OBSERVATIONS[0])
        cut = [
            agent.learn(state._replace(key=jax.random.key(i)), 0.0, truncated=True, final_observation=OBSERVATIONS[5])
            for i in range(40)
        ]
        found[on_policy] = np.array([float(state.outcome.final_value) for state, _ in cut])
        hits = np.abs(found[on_policy][:, None] - values).min(axis=1)
        np.testing.assert_allclose(hits, 0, atol=1e-12)
    assert 10 < (found[True] == found[True].max()).sum() < 30
    np.testing.assert_allclose(found[False], values.max(), atol=1e-12)


@pytest.mark.full
def test_the_error_of_a_cut_episode_under_sarsa_by_hand():
    agent = frozen(rl.QLearning, epsilon=0.0, on_policy=True)
    q = np.asarray(outputs_of(agent.network))
    actions, state = episode(agent, agent.init(), terminated=False)
    expected = REWARDS[-1] + DISCOUNT * q[T].max() - q[T - 1, actions[-1]]
    np.testing.assert_allclose(state.info.td_error, expected, atol=1e-12)
