"""The card tasks keep the rules of POPGym."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_environments import walk

from foretrace import rl

TASKS = [rl.RepeatFirst(), rl.RepeatPrevious(), rl.RepeatPrevious(2, back=31)]


def episode(task, seed, actions=None):
    """Return the suits shown in one episode, and what followed each action."""
    steps = task.card_count - 1
    first, found = walk(
        task, np.asarray([0] * steps if actions is None else actions, np.int32), seed
    )
    return np.concatenate([[first.argmax()], found.observation.argmax(1)]), found


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{type(task).__name__}-{task.decks}")
def test_an_episode_shows_the_whole_deck(task):
    shown, found = episode(task, 0)
    np.testing.assert_array_equal(np.bincount(shown), [13 * task.decks] * 4)
    np.testing.assert_array_equal(np.flatnonzero(found.terminated), [task.card_count - 2])
    np.testing.assert_array_equal(found.observation.sum(1), 1)
    assert not found.truncated.any()
    again, _ = episode(task, 1)
    assert (again != shown).any()


def test_who_remembers_has_the_best_return(seed=7):
    first = rl.RepeatFirst()
    shown, _ = episode(first, seed)
    _, found = episode(first, seed, [shown[0]] * 51)
    np.testing.assert_allclose(found.reward, 1 / 51, rtol=1e-6)
    previous = rl.RepeatPrevious(back=3)
    shown, _ = episode(previous, seed)
    answers = np.concatenate([[0, 0, 0], shown[:48]])
    _, found = episode(previous, seed, answers)
    np.testing.assert_array_equal(found.reward[:3], 0)
    np.testing.assert_allclose(found.reward[3:], 1 / 48, rtol=1e-6)
    _, wrong = episode(previous, seed, (answers + 1) % 4)
    np.testing.assert_allclose(wrong.reward, -found.reward)
    assert previous.best_return == first.best_return == 1 == pytest.approx(found.reward.sum())


def test_the_card_on_the_table_needs_no_memory():
    task = rl.RepeatPrevious(back=0)
    shown, _ = episode(task, 3)
    _, found = episode(task, 3, shown[:-1])
    assert found.reward.sum() == pytest.approx(1)


def test_bad_sizes_are_named():
    with pytest.raises(ValueError, match="decks=0"):
        rl.RepeatFirst(0)
    with pytest.raises(ValueError, match="back=-1"):
        rl.RepeatPrevious(back=-1)
    with pytest.raises(ValueError, match="back=51"):
        rl.RepeatPrevious(back=51)
    assert rl.RepeatPrevious(back=50).card_count == 52


def test_both_card_tasks_are_pure():
    for task in TASKS[:2]:
        state, _ = task.reset(jax.random.key(0))
        step = [task.step(state, jnp.array(1, jnp.int32), jax.random.key(i)) for i in range(2)]
        assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), *step))
