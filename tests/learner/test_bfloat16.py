"""Sensitivities in bfloat16 between calls: right on average, half the memory, exact resume."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

import foretrace as ft
from foretrace._engine.carry import init_carry
from foretrace._engine.rounding import rounded, widened
from foretrace._recurrence.chunk import Carry

LOSS = ft.losses.softmax_cross_entropy

pytestmark = pytest.mark.usefixtures("standard_promotion")


def make_learner(rule=ft.ONLINE, dtype="bfloat16", **options):
    network = ft.Network(
        2,
        3,
        model_size=4,
        depth=2,
        cell=ft.LRU.factory(state_size=3, r_min=0.9),
        key=jax.random.key(0),
    )
    return ft.Learner(
        network,
        rule=rule,
        optimizer=ft.adamw(1e-3),
        loss=LOSS,
        sensitivity_dtype=dtype,
        accumulate=True,
        **options,
    )


def carry_of(values, h=0.3):
    return Carry(jnp.asarray([h + 0.1j]), jnp.asarray(values))


def test_rounding_is_right_on_average_and_to_a_neighbour():
    value = 1.0 + 0.3 / 128  # three tenths of the way from one number of bfloat16 to the next
    found = np.asarray(rounded(carry_of(np.full(100_000, value))).e, np.float64)
    assert set(np.unique(found)) == {1.0, 1.0 + 1 / 128}
    share = (found > 1).mean()
    assert abs(share - 0.3) < 5 * np.sqrt(0.3 * 0.7 / 100_000)


def test_other_states_give_other_noise_and_the_same_give_the_same():
    values = np.random.default_rng(0).normal(size=1000)
    one, again, other = (np.asarray(rounded(carry_of(values, h)).e, float) for h in (0.3, 0.3, 0.4))
    assert (one == again).all()
    # Of two numbers that bfloat16 does not hold, a third of pairs of independent roundings differ,
    # on average.
    assert 0.2 < (one != other).mean() < 0.5


def test_no_two_numbers_share_their_noise():
    """Neither leaves nor rows share noise, since their errors would add up, not cancel."""
    values = jnp.asarray(np.random.default_rng(0).normal(size=1000))
    rows = jnp.broadcast_to(values, (3, 1000))
    found = rounded(Carry(jnp.asarray([0.3 + 0.1j]), {"one": rows, "two": rows})).e
    found = np.asarray(jnp.concatenate([found["one"], found["two"]]), float)
    shares = [(a != b).mean() for i, a in enumerate(found) for b in found[:i]]
    assert len(shares) == 15 and min(shares) > 0.2 and max(shares) < 0.5


def test_what_is_added_to_a_long_memory_is_not_lost():
    """Rounded to the nearest, this sum would stop at 256, where one is less than half a place."""
    total, h = jnp.zeros(4000), jnp.zeros(())
    step = jax.jit(lambda total, h: rounded(Carry(h, total.astype(float) + 1)).e)
    for t in range(1500):
        total = step(total, h + t)
    assert total.dtype == jnp.bfloat16
    assert abs(float(total.astype(float).mean()) - 1500) < 3


def test_complex_numbers_and_infinities_come_back():
    like = jax.ShapeDtypeStruct((2, 2), complex)
    e = jnp.asarray([[1.0 - 2.0j, 0.5j], [complex(np.inf, 1), complex(0, np.nan)]])
    back = widened(rounded(Carry(jnp.ones(1), e)), like).e
    assert back.dtype == e.dtype
    np.testing.assert_array_equal(back, e)


@pytest.mark.full
@pytest.mark.parametrize("rule", fast([ft.ONLINE, ft.ONLINE.with_depth(2)]), ids=str)
def test_the_gradient_is_near_and_the_carry_small(rule):
    xs, ys = (
        jax.random.normal(jax.random.key(1), (3, 60, 2)),
        jax.random.randint(jax.random.key(2), (3, 60), 0, 3),
    )
    grads, sizes = [], []
    for dtype in (None, "bfloat16"):
        learner = make_learner(rule, dtype, batch_size=3)
        state = learner.init()
        for i in range(0, 60, 5):
            state, _ = learner.step(state, xs[:, i : i + 5], ys[:, i : i + 5])
        grads.append(jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(state.grads)]))
        sizes.append(sum(leaf.nbytes for leaf in jax.tree.leaves(state.carry.e)))
    exact, near = grads
    error = float(jnp.linalg.norm(near - exact) / jnp.linalg.norm(exact))
    assert 1e-5 < error < 0.02  # bfloat16 has a relative precision of 0.004
    assert 4 * sizes[1] == sizes[0]  # these tests run in float64


@pytest.mark.full
def test_it_goes_on_exactly_from_a_checkpoint(tmp_path):
    learner = make_learner()
    xs, ys = jax.random.normal(jax.random.key(1), (20, 2)), jnp.zeros(20, int)
    state, _ = learner.step(learner.init(), xs[:10], ys[:10])
    ft.save(tmp_path / "state.safetensors", state)
    on, _ = learner.step(state, xs[10:], ys[10:])
    again, _ = learner.step(ft.load(tmp_path / "state.safetensors", learner), xs[10:], ys[10:])
    jax.tree.map(np.testing.assert_array_equal, again.carry, on.carry)


@pytest.mark.full
def test_predicting_moves_sensitivities_on_as_learning_does():
    learner = make_learner()
    xs, ys = jax.random.normal(jax.random.key(1), (20, 2)), jnp.zeros(20, int)
    learned, _ = learner.step(learner.init(), xs, ys)
    _, predicted = learner.predict(learner.init(), xs)
    jax.tree.map(np.testing.assert_array_equal, predicted.carry, learned.carry)


@pytest.mark.full
def test_a_reset_and_the_beginning_are_exactly_zero():
    learner = make_learner()
    shapes = jax.eval_shape(lambda: init_carry(learner.network, ft.ONLINE)).e
    assert all(
        (leaf == 0).all() for leaf in jax.tree.leaves(widened(learner.init().carry, shapes).e)
    )


def test_another_type_is_a_clear_error(without_shape_checks):
    with pytest.raises(ValueError, match="sensitivity_dtype='int8'"):
        make_learner(dtype="int8")
