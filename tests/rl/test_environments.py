"""The built-in environments: pure functions that keep their laws under any actions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

from foretrace import rl

MAZE = rl.TMaze(3, limit=12)
ENVIRONMENTS = [
    rl.MemoryChain(3),
    rl.TraceConditioning(4, distractors=2),
    MAZE,
    rl.RepeatFirst(),
    rl.RepeatPrevious(2, back=31),
    rl.Masked(MAZE, (1,)),
]


def walk(environment, actions, seed=0):
    """Return the first observation and what follows each action, episode after episode."""

    def act(state, now):
        action, key = now
        state, step, _ = rl.step_or_reset(environment, state, action, key)
        return state, step

    state, first = environment.reset(jax.random.key(seed))
    keys = jax.random.split(jax.random.key(seed + 1), len(actions))
    _, steps = jax.lax.scan(act, state, (jnp.asarray(actions, jnp.int32), keys))
    return np.asarray(first), jax.tree.map(np.asarray, steps)


@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=str)
def test_an_environment_is_a_pair_of_pure_functions(environment):
    """`check_environment` is what a run asks for; equal arguments have equal results."""
    rl.check_environment(environment)
    key, action = jax.random.key(0), jnp.array(1, jnp.int32)
    state, observation = environment.reset(key)
    once, again = ((environment.reset(key), environment.step(state, action, key)) for _ in "12")
    jax.tree.map(np.testing.assert_array_equal, once, again)
    step = once[1][1]
    assert observation.dtype == step.reward.dtype == step.discount.dtype == jnp.result_type(float)


@given(st.lists(st.integers(0, 1), min_size=12, max_size=12), st.integers(0, 99))
def test_a_memory_chain_asks_for_its_cue(actions, seed):
    length = 3
    first, steps = walk(rl.MemoryChain(length), actions, seed)
    ends = np.flatnonzero(steps.terminated)
    np.testing.assert_array_equal(ends, [length, 2 * length + 1, 3 * length + 2])
    assert not steps.truncated.any() and abs(first[0]) == 1 and first[1] == 0
    assert steps.reward[length] == (1 if (actions[length] == 1) == (first[0] > 0) else -1)
    assert (steps.reward[~steps.terminated] == 0).all()
    np.testing.assert_array_equal(steps.observation[:length, 1], [0, 0, 1])
    assert (steps.observation[:length, 0] == 0).all()


def test_both_cues_come():
    cues = {float(walk(rl.MemoryChain(1), [0], seed)[0][0]) for seed in range(8)}
    assert cues == {-1.0, 1.0}


@pytest.mark.full
@given(st.integers(2, 6), st.integers(1, 9), st.integers(0, 99))
def test_the_event_follows_the_stimulus_by_the_interval(interval, pause, seed):
    _, steps = walk(rl.TraceConditioning(interval, pause), [0] * 200, seed)
    stimuli, events = (np.flatnonzero(steps.observation[:, i]) for i in range(2))
    np.testing.assert_array_equal(steps.reward, steps.observation[:, 1])
    assert len(events) > 3 and not (steps.terminated | steps.truncated).any()
    events = events[events >= stimuli[0]]
    np.testing.assert_array_equal(events - stimuli[: len(events)], interval)
    pauses = stimuli[1 : len(events) + 1] - events[: len(stimuli) - 1]
    assert pauses.min() >= pause and pauses.max() <= 2 * pause


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
    values, known = jax.vmap(lambda state: environment.value(state, discount))(jnp.arange(4))
    np.testing.assert_allclose(means, values, rtol=0.02)
    np.testing.assert_array_equal(known, [False, True, True, True])
    # The best constant between stimulus and event is the mean of the values there.
    np.testing.assert_allclose(environment.spread(discount), np.var(values[1:]), rtol=1e-4)


def test_the_shortest_way_through_a_maze_turns_where_the_sign_points():
    seen = set()
    for seed in range(6):
        first, steps = walk(MAZE, [1, 1, 1, 0], seed)
        north = first.tolist() == [0, 1, 1]
        seen.add(tuple(first))
        np.testing.assert_array_equal(steps.terminated, [False, False, False, True])
        np.testing.assert_allclose(steps.reward, [0, 0, 0, 4 if north else -0.1])
        np.testing.assert_array_equal(steps.observation[:3], [[1, 0, 1], [1, 0, 1], [0, 1, 0]])
    assert seen == {(0, 1, 1), (1, 1, 0)}


def test_walls_cost_and_a_limit_truncates():
    _, steps = walk(rl.TMaze(2, limit=5), [3, 0, 2, 1, 3, 3])
    np.testing.assert_allclose(steps.reward[:5], [-0.1, -0.1, -0.1, 0, 0])
    np.testing.assert_array_equal(steps.truncated, [False] * 4 + [True, False])
    assert not steps.terminated.any()
    # The last turn of the steps allowed ends the episode by itself.
    _, steps = walk(rl.TMaze(2, limit=3), [1, 1, 0])
    assert steps.terminated[2] and not steps.truncated[2]


def shown_in(task, seed, actions=None):
    """Return the suits shown in one episode, and what followed each action."""
    first, found = walk(task, np.zeros(task.card_count - 1) if actions is None else actions, seed)
    return np.append(first.argmax(), found.observation.argmax(1)), found


@pytest.mark.parametrize(
    ("task", "back"),
    [
        (rl.RepeatFirst(), None),
        *((rl.RepeatPrevious(d, b), b) for d, b in ((1, 3), (1, 0), (2, 31))),
    ],
    ids=str,
)
def test_the_deck_is_shown_and_memory_of_a_card_has_the_best_return(task, back, seed=7):
    shown, _ = shown_in(task, seed)
    steps = len(shown) - 1
    asked = np.zeros(steps, int) if back is None else np.arange(steps) - back
    counts, answers = asked >= 0, shown[np.maximum(asked, 0)]
    _, found = shown_in(task, seed, answers)
    np.testing.assert_allclose(found.reward, counts / counts.sum(), rtol=1e-6)
    _, wrong = shown_in(task, seed, (answers + 1) % 4)
    np.testing.assert_allclose(wrong.reward, -found.reward)
    assert task.best_return == 1 == pytest.approx(found.reward.sum(), abs=1e-5)
    np.testing.assert_array_equal(np.bincount(shown), [13 * task.decks] * 4)
    np.testing.assert_array_equal(np.flatnonzero(found.terminated), [steps - 1])
    assert (found.observation.sum(1) == 1).all() and not found.truncated.any()
    assert (shown_in(task, seed + 1)[0] != shown).any()


@pytest.mark.parametrize(("hide", "left"), fast([((2, 0), [1]), ((1,), [0, 2]), ((), [0, 1, 2])]))
def test_hidden_elements_are_left_out_and_all_else_is_the_wrapped_environments(hide, left):
    actions = [1, 3, 1, 1, 0, 1, 2, 1, 1, 0, 1, 1]
    first, steps = walk(MAZE, actions)
    wrapped = rl.Masked(MAZE, hide)
    seen, masked = walk(wrapped, actions)
    np.testing.assert_array_equal(seen, first[left])
    expected = steps._replace(observation=steps.observation[:, left])
    jax.tree.map(np.testing.assert_array_equal, masked, expected)
    assert (wrapped.action_count, wrapped.truncates) == (4, True)
    assert not hasattr(wrapped, "value") and not hasattr(wrapped, "spread")
    inner = rl.TraceConditioning(3)
    state, _ = inner.reset(jax.random.key(0))
    other = rl.Masked(inner, (1,))
    assert other.spread(0.9) == inner.spread(0.9)
    np.testing.assert_array_equal(other.value(state, 0.9), inner.value(state, 0.9))


@pytest.mark.full
def test_cartpole_of_gymnax():
    pytest.importorskip("gymnax")
    environment = rl.Gymnax("CartPole-v1")
    rl.check_environment(environment)
    assert (environment.observation_size, environment.action_count) == (4, 2)
    _, steps = walk(environment, [1] * 30)
    assert steps.terminated.sum() >= 2 and not steps.truncated.any()
