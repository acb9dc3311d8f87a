"""The agents: what a stream teaches by definition, how parameters move, refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from rl_cases import (
    DISCOUNT,
    assert_same,
    lessons_of,
    make_agent,
    outputs_of,
    run,
    stream,
    summing,
)
from tiers import fast

import foretrace as ft
from foretrace import rl
from foretrace.rl._moments import Moments

pytestmark = [
    pytest.mark.exact,
    pytest.mark.usefixtures("standard_promotion", "allowed_rank_promotion"),
]
DECAY = 0.7
SEEN = np.random.default_rng(0).normal(size=(6, 2))
FIRST = rl.Transition(SEEN[0], first=True)
METHODS = {
    "entropy": rl.ActorCritic(actor_weight=0.3, entropy=0.1),
    "prediction": rl.ValuePrediction(),
    "policy": rl.ActorCritic(actor_weight=0.3),
    "continuous": rl.ActorCritic(action_size=2, entropy=0.1),
    "q": rl.QLearning(0.5),
    "sarsa": rl.QLearning(0.5, on_policy=True),
}
NETWORKS = {
    "lru": ("lru", 1, ft.ONLINE.with_depth(1)),
    "gru": ("gru", 1, ft.RTRL),
    "two": ("lru", 2, ft.ONLINE.with_depth(2)),
    "modules": (None, 1, ft.ONLINE),
}
STREAMS = [
    ("entropy", "lru", 2, {"normalize_observations": True, "scale_rewards": True}),
    *((method, "lru", None, {}) for method in METHODS),
    # An actor-critic has the value that the others predict, beside its policy.
    *(("entropy", network, None, {}) for network in ("gru", "two", "modules")),
]


@pytest.fixture(scope="module")
def allowed_rank_promotion():
    with jax.numpy_rank_promotion("allow"):
        yield


def by_definition(method, output, action):
    """Return value and objective of a step with this action, and the entropy of the policy."""
    if not isinstance(method, rl.ActorCritic):
        value = output[action if isinstance(method, rl.QLearning) else 0]
        return value, value, 0.0
    value, rest = output[0], output[1:]
    if method.action_size is None:
        log_policy = jax.nn.log_softmax(rest)
        log_probability, entropy = log_policy[action], -(jnp.exp(log_policy) * log_policy).sum()
    else:
        mean, raw = jnp.split(rest, 2)
        deviation = jnp.log1p(jnp.exp(raw)) + 1e-3
        away = (action - mean) / deviation
        entropy = jnp.log(deviation).sum()
        log_probability = -(0.5 * away**2 + 0.5 * jnp.log(2 * jnp.pi)).sum() - entropy
    return value, value + method.actor_weight * log_probability, entropy


def exact_part(rule, grads):
    """Return the gradients that a rule gives exactly: without depth, all but before the cell."""
    if rule.credit is not None or isinstance(grads, ft.ModuleNetwork):
        return grads
    return grads.blocks.cell, grads.blocks.glu, grads.decoder


def scales_of(given, lessons):
    """Return the deviation of the discounted sums of rewards at each step, over all streams."""
    rewards, total = given.reward.reshape(len(given.reward), -1), np.zeros(len(lessons))
    sums, found = [], []
    for k, reward in enumerate(rewards[lessons[0].at[:-1] + 1]):
        total = np.where([one.begins[k] for one in lessons], 0, total)
        if any(one.known[k] for one in lessons):
            total = DISCOUNT * total + reward
            sums.append(total)
        found.append(np.sqrt(np.var(sums, ddof=1) + 1e-8) if np.size(sums) > 1 else 1)
    return np.array([*found, 1.0])


def valued(method, one, taken, errors, outputs, ahead):
    """Return the value of each step and of what follows, and whether its action explores."""
    never = np.zeros(len(taken), bool)
    if not isinstance(method, rl.QLearning):
        return outputs[:, 0], ahead[:, 0], never
    value = np.take_along_axis(outputs, taken[:, None], 1)
    if not method.on_policy:
        return value[:, 0], ahead.max(1), value[:, 0] < outputs.max(1)
    # Which action the policy would choose behind a cut is not seen.
    found = one.reward[:, None] + one.discount[:, None] * ahead - value - errors[:, None]
    after = np.where(np.append(one.begins[1:], True), abs(found).argmin(1), np.roll(taken, -1))
    return value[:, 0], np.take_along_axis(ahead, after[:, None], 1)[:, 0], never


@pytest.mark.parametrize(("name", "network", "streams", "options"), fast(STREAMS))
def test_a_stream_teaches_the_gradient_of_its_objective(name, network, streams, options):
    """Frozen parameters: the sum of -delta * z is a gradient of whole episodes, errors constant.

    What enters the trace at a step is multiplied by all later errors of its episode.
    """
    method, (cell, depth, rule) = METHODS[name], NETWORKS[network]
    options = {"rule": rule, "trace_decay": DECAY, "optimizer": summing(), **options}
    agent = make_agent(method, actions=3, cell=cell, depth=depth, batch_size=streams, **options)
    given, front = stream(40, streams, gaps=True, seed=1), (40, streams or 1)
    state, (actions, infos, _) = run(agent, given, jax.random.key(3))
    actions = actions.reshape(*front, *np.shape(actions)[1 + (streams is not None) :])
    lessons = list(lessons_of(given, normalized=agent.normalize_observations))
    scale = scales_of(given, lessons) if agent.scale_rewards else 1.0
    read, total = jax.jit(outputs_of), jax.tree.map(np.zeros_like, agent.network)

    @jax.jit
    @jax.grad
    def taught(network, one, taken, errors, later):
        each = jax.vmap(lambda output, action: by_definition(method, output, action))
        _, objective, entropy = each(outputs_of(network, one)[0], taken)
        return -(later[:-1] @ (objective + method.entropy * jnp.sign(errors) * entropy))

    for i, one in enumerate(lessons):
        taken = np.asarray(actions[one.at, i])
        found = np.append(infos.td_error.reshape(front)[one.at[1:], i], 0)
        outputs = map(np.asarray, read(agent.network, one))
        value, following, explores = valued(method, one, taken, found, *outputs)
        errors = np.where(one.known, one.reward / scale + one.discount * following - value, 0)
        np.testing.assert_allclose(found, errors, atol=1e-10)
        keep = DECAY * one.discount * one.known * ~np.roll(one.begins | explores, -1)
        later = np.zeros(len(errors) + 1)
        for k in reversed(range(len(errors))):
            later[k] = errors[k] + keep[k] * later[k + 1]
        found = taught(agent.network, one, taken, errors, later)
        total = jax.tree.map(lambda a, b: a + np.asarray(b) / front[1], total, found)
    assert_same(exact_part(rule, state.opt_state), exact_part(rule, total))
    seen, paid = (
        np.isfinite(part.reshape(40, -1)).all(1) for part in (given.observation, given.reward)
    )
    np.testing.assert_array_equal(infos.accepted, seen)
    assert int(state.skipped) == np.count_nonzero(~seen | ~paid)
    assert int(state.step) == np.count_nonzero(np.any([one.known for one in lessons], axis=0))


def test_an_action_is_a_sample_of_its_policy():
    method, output = METHODS["continuous"], jnp.array([5.0, 1.0, -1.0, 0.5, 2.0])

    exploring, values = rl.QLearning(1.0), jnp.array([3.0, 1.0, 2.0])

    @jax.jit
    @jax.vmap
    def draw(key):
        noises = method.noise(key, None, 5, jnp.float64), exploring.noise(key, 0, 3, values.dtype)
        return method.action(output, noises[0]), exploring.action(values, noises[1])

    drawn, taken = map(np.asarray, draw(jax.random.split(jax.random.key(0), 4000)))
    np.testing.assert_allclose(drawn.mean(0), output[1:3], atol=0.1)
    np.testing.assert_allclose(drawn.std(0), np.log1p(np.exp(output[3:])), rtol=0.05)
    np.testing.assert_array_equal(method.action(output, jnp.zeros(2)), output[1:3])
    np.testing.assert_allclose(np.bincount(taken), 4000 / 3, rtol=0.1)
    assert int(exploring.action(values, jnp.zeros(2))) == 0


def test_a_bounded_step_is_that_of_its_equation_and_the_mean_over_streams():
    """It moves the value by less than its error."""
    rng, optimizer = np.random.default_rng(0), rl.ObGD(10.0, 2.0)
    network, trace = jnp.zeros((3, 2)), rng.normal(size=(4, 3, 2)) * 0.1
    errors = np.array([0.02, -3.0, 0.0, 100.0])
    change = optimizer.update(None, network, jnp.asarray(trace), jnp.asarray(errors), None)
    bound = 20.0 * np.maximum(abs(errors), 1) * abs(trace).sum((1, 2))
    np.testing.assert_allclose(change.step_size, 10.0 / np.maximum(bound, 1), atol=1e-12)
    moved = (change.step_size * errors)[:, None, None] * trace
    np.testing.assert_allclose(change.network, moved.mean(0), atol=1e-12)
    agent = make_agent(rl.ValuePrediction(), optimizer=optimizer)
    value, state, _ = agent.step(jax.jit(agent.init)(), FIRST)
    _, state, info = agent.step(state, rl.Transition(SEEN[0], 100.0, terminated=True))
    moved = float(ft.forward(state.network, None, jnp.asarray(SEEN[:1]))[0][0, 0] - value)
    assert 0 < moved < float(info.td_error)


def test_an_optimiser_of_optax_takes_the_mean_and_waits_where_nothing_is_known():
    """The mean is that of the first test; momentum begins with the first one."""
    agent = make_agent(rl.ValuePrediction(), batch_size=2, optimizer=optax.sgd(0.5, momentum=0.9))
    given = stream(6, 2)._replace(
        first=np.array([[1, 1], [0, 0], [0, 0], [1, 1], [1, 1], [1, 1]]) > 0
    )
    _, (_, infos, states) = run(agent, given, kept=lambda state: (state.network, state.opt_state))
    states = jax.tree.map(np.asarray, states)
    first, (momentum, _) = jax.tree.map(lambda leaf: leaf[1], states)
    moved = jax.tree.map(lambda p, g: np.asarray(p) - 0.5 * g, agent.network, momentum.trace)
    assert_same(first, moved)
    for leaf in jax.tree.leaves(states):
        np.testing.assert_array_equal(leaf[3:], leaf[[2, 2, 2]])
    assert infos.update_norm[2] > 0 == infos.update_norm[3]


@pytest.mark.full
def test_moments_follow_the_spread_of_rows_beyond_what_float32_counts():
    """Twice as many rows as float32 counts: what came before is forgotten."""
    rows = jnp.asarray(np.random.default_rng(0).normal(3.0, 2.0, (200, 1)), jnp.float32)
    start = Moments(*(jnp.array(part, jnp.float32) for part in (1000.0, [0.0], [9e3])))
    include = jax.jit(lambda m: jax.lax.fori_loop(0, 10 * 2**14, lambda _, m: m.including(rows), m))
    moments = include(start)
    assert float(moments.rows) == 1e6
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-3)
    np.testing.assert_allclose(moments.variance, rows.var(0), rtol=1e-3)
