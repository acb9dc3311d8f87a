"""The built-in environments: pure functions that keep their rules under any actions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

from foretrace import rl

MAZE = rl.TMaze(3, limit=12)


@functools.cache
def program(environment):
    """Return the compiled walk, one for all examples of as many actions."""

    def act(now, given):
        (state, seen), (action, key) = now, given
        state, step, following = rl.step_or_reset(environment, state, action, key)
        return (state, following), (seen, step)

    def walk(seed, actions):
        keys = jax.random.split(jax.random.key(seed + 1), len(actions))
        start = environment.reset(jax.random.key(seed))
        return jax.lax.scan(act, start, (actions, keys))[1]

    return jax.jit(walk)


def walk(environment, actions, seed=0):
    """Return the observation before each action, and what follows it, episode after episode."""
    return jax.tree.map(np.asarray, program(environment)(seed, np.array(actions, np.int32)))


def chain(task, shown, actions):
    """Yield what follows each action of an episode: observation, reward, ended, cut."""
    for t, action in enumerate(actions[: task.length + 1]):
        ends, right = t == task.length, (action == 1) == (shown[0][0] > 0)
        yield [0, t + 1 == task.length], ends * (1 if right else -1), ends, False


def maze(task, shown, actions):
    north, place, turns = shown[0].tolist() == [0, 1, 1], 0, False
    assert north or shown[0].tolist() == [1, 1, 0]
    for t, action in enumerate(actions[: task.limit]):
        here, place = place, min(max(place + {1: 1, 3: -1}.get(action, 0), 0), task.corridor)
        turns = here == task.corridor and action in (0, 2)
        prize = 4 if (action == 0) == north else -0.1
        seen = {0: shown[0], task.corridor: [0, 1, 0]}.get(place, [1, 0, 1])
        reward = prize if turns else -0.1 * (place == here)
        yield seen, reward, turns, t + 1 == task.limit and not turns
        if turns:
            return


def cards(task, shown, actions):
    steps = 52 * task.decks - 1
    suits = shown[: steps + 1].argmax(1)
    if len(suits) > steps:
        # The last card is seen behind the last action alone.
        rest = 13 * task.decks - np.bincount(suits[:steps], minlength=4)
        suits[steps] = rest.argmax()
        assert rest.sum() == 1 == rest.max()
    back = getattr(task, "back", None)
    for t, action in enumerate(actions[:steps]):
        asked, asks = (0, steps) if back is None else (t - back, steps - back)
        right = 1 if action == suits[max(asked, 0)] else -1
        seen = np.eye(4)[suits[t + 1]] if t + 1 < len(suits) else None
        yield seen, (asked >= 0) * right / asks, t + 1 == steps, False


RULES = [
    (rl.MemoryChain(3), chain),
    (MAZE, maze),
    (rl.RepeatFirst(), cards),
    *((rl.RepeatPrevious(decks, back), cards) for decks, back in ((1, 3), (2, 31))),
]


@pytest.mark.parametrize(
    ("task", "rules"), fast(RULES, 4), ids=lambda one: getattr(one, "__name__", str(one))
)
@given(st.lists(st.integers(0, 3), min_size=220, max_size=220), st.integers(0, 99))
def test_an_environment_keeps_its_rules(task, rules, actions, seed):
    actions[::3] = [1] * len(actions[::3])  # else hardly any way leads through a maze
    shown, steps = walk(task, actions, seed)
    rl.check_environment(task)
    assert {part.dtype.kind for part in (shown, steps.reward, steps.discount)} == {"f"}
    rows = []
    while len(rows) < len(actions):
        rows += rules(task, shown[len(rows) :], actions[len(rows) :])
    seen, *others = zip(*rows, strict=True)
    known = [t for t, one in enumerate(seen) if one is not None]
    expected = np.stack([seen[t] for t in known])
    np.testing.assert_array_equal(steps.observation[known], expected)
    expected = np.stack([*others, np.ones(len(rows))])
    np.testing.assert_allclose(np.stack(steps[1:]), expected, rtol=1e-6)
    assert steps.terminated.sum() > 1 and steps.reward.max() <= task.best_return
    assert len({tuple(walk(task, actions, at)[0][0]) for at in range(16)}) > 1


@pytest.mark.parametrize("discount", fast([0.9, 0.99]))
def test_the_value_of_trace_conditioning_is_the_mean_of_what_comes(discount):
    """In a stream of many events, discounted sums of them are the value on average."""
    steps, interval = 20_000, 3
    environment = rl.TraceConditioning(interval, pause=2)
    seen = walk(environment, np.zeros(steps))[1].observation
    events = np.flatnonzero(seen[:, 1])
    returns, total = np.zeros(steps), 0.0
    for t in reversed(range(1, steps)):
        total = returns[t - 1] = seen[t, 1] + discount * total
    before = [events[5:-500] - s for s in range(interval + 1)]
    means = [returns[at].mean() for at in before]
    value_of = jax.jit(jax.vmap(lambda state: environment.value(state, discount)))
    values, known = map(np.asarray, value_of(jnp.arange(4)))
    np.testing.assert_allclose(means, values, rtol=0.02)
    np.testing.assert_array_equal(known, [False, True, True, True])
    # The best constant between stimulus and event is the mean of the values there.
    np.testing.assert_allclose(environment.spread(discount), np.var(values[1:]), rtol=1e-4)


@pytest.mark.parametrize(("hide", "left"), fast([((2, 0), [1]), ((), [0, 1, 2])]))
def test_hidden_elements_are_left_out_and_all_else_is_the_wrapped_environments(hide, left):
    actions = [1, 3, 1, 1, 0, 1, 2, 1, 1, 0, 1, 1]
    shown, steps = walk(MAZE, actions)
    wrapped = rl.Masked(MAZE, hide)
    expected = shown[:, left], steps._replace(observation=steps.observation[:, left])
    jax.tree.map(np.testing.assert_array_equal, walk(wrapped, actions), expected)
    assert (wrapped.action_count, wrapped.truncates) == (4, True)
    assert not hasattr(wrapped, "value") and not hasattr(wrapped, "spread")


@pytest.mark.full
def test_environments_of_gymnax():
    """Discrete actions, and continuous ones, which are clipped to their bounds."""
    pytest.importorskip("gymnax")
    swimmer, key = rl.Gymnax("Swimmer-misc"), jax.random.key(0)
    rl.check_environment(swimmer)
    state, _ = swimmer.reset(key)
    far, most = (swimmer.step(state, jnp.array([-1.0, by]), key)[1] for by in (5.0, 1.0))
    np.testing.assert_array_equal(far.observation, most.observation)
    environment = rl.Gymnax("CartPole-v1")
    rl.check_environment(environment)
    assert (environment.observation_size, environment.action_count) == (4, 2)
    _, steps = walk(environment, [1] * 30)
    assert steps.terminated.sum() >= 2 and not steps.truncated.any()


@pytest.mark.full
def test_gymnax_asks_for_the_cue_of_so_many_steps_ago(benchmark):
    pytest.importorskip("gymnax", reason="pip install 'foretrace[rl]'")
    chain = benchmark("agents.others").GymnaxChain(length=3)
    state, observation = chain.reset(jax.random.key(0))
    cue, rewards = observation[2], []
    for _ in range(4):
        state, step = chain.step(state, (cue > 0).astype(int), jax.random.key(1))
        rewards.append((float(step.reward), bool(step.terminated)))
    assert abs(cue) == 1
    assert rewards == [(0.0, False)] * 3 + [(1.0, True)]
