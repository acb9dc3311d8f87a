"""Credit in depth by some modules: exact for these, and on average the credit of all."""

import dataclasses
import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import (
    LOSS,
    RESET,
    WEIGHTS,
    XS,
    YS,
    apart,
    assert_equal,
    make_network,
    run,
    run_in_chunks,
)
from jax import lax
from tiers import fast

import foretrace as ft
from foretrace._credit import groups as groups_
from foretrace._credit.depth import NEXT_EPISODE
from foretrace._credit.modules import sample_modules
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate
from foretrace._recurrence.chunk import Modules

ALL = ft.ONLINE.with_depth(1)


def some(number):
    return ft.rule(f"online(depth=1, modules={number})")


ONE, TWO = some(1), some(2)
TWO_BY_MEMORY = ft.rule("online(depth=1, modules=2, by_memory=True)")
NEVER = np.zeros(6, bool)
ODD = np.arange(6) == 3  # inside the second chunk of two


def indicators(network, rule, h, key):
    """Return the factors that the gradient is linear in: weighted indicators, each 1 on average.

    One module of every recurrence: a sensitivity passes each recurrence once.
    """
    size, joint = jax.tree.leaves(h)[0].shape[1], jnp.ones(1)
    for chosen, weight in zip(*sample_modules(network, rule, key), strict=True):
        share = jnp.zeros(size).at[chosen].set(weight)
        joint = jnp.einsum("i,j->ij", joint, share, optimize=False).ravel()
    return joint


def weights_of(found):
    """Return weights of keys that give every product of indicators its mean over all keys."""
    weights = np.linalg.lstsq(found.T, np.ones(found.shape[1]), rcond=None)[0]
    np.testing.assert_allclose(found.T @ weights, 1, atol=1e-10)
    assert np.abs(weights).sum() < 50  # well conditioned
    return weights


def test_some_modules_stand_for_all():
    """The mean over all choices, of one step; whole gradients are in the full tier."""
    rng = np.random.default_rng(0)
    theta, h = [jnp.asarray(rng.normal(size=(2, 4)))], jnp.asarray(rng.normal(size=3))
    e = [jnp.asarray(rng.normal(size=(3, 2, 4)))]

    def slope(modules):
        some = e if modules is None else [e[0][modules.chosen]]
        return jax.jacobian(lambda theta: groups_.attach_subset(h, some, theta, modules))(theta)[0]

    pairs = [
        Modules(jnp.asarray(pair), jnp.full(2, 1.5)) for pair in itertools.combinations(range(3), 2)
    ]
    assert_equal(np.mean([slope(pair) for pair in pairs], axis=0), slope(None))
    assert_equal(slope(None), e[0])
    # Modules 0 and 1, or 0 and 2, with probabilities 1/4 and 3/4: each weighs one over its own
    # probability.
    unequal = [
        slope(Modules(jnp.array([0, n]), jnp.array([1, 1 / p]))) * p
        for n, p in ((1, 0.25), (2, 0.75))
    ]
    assert_equal(sum(unequal), slope(None))


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "rule", "keys"),
    fast(
        [
            ("lru", ONE, 200),
            ("lru", ft.rule("hybrid(depth=3, modules=2)"), 200),
            ("lru", ft.rule("online(depth=2, modules=1, by_memory=True)"), 4000),
            ("lstm", ft.rule("online(depth=2, groups=1, modules=2, by_memory=True)"), 400),
            ("lru", ft.rule("online(depth=3, groups=1, modules=1)"), 200),
            ("lstm", ft.rule("online(depth=2, modules=1)"), 400),
        ]
    ),
    ids=lambda value: str(value) if isinstance(value, str | ft.LearningRule) else "",
)
def test_the_mean_over_all_choices_is_the_credit_of_all(cell, rule, keys):
    network, data = make_network(cell), Data(*map(jnp.asarray, (XS[0], YS[0], WEIGHTS)))

    def total(rule, key):
        carry, grads = ft.init_carry(network, rule, key=key), None
        for at in (0, 2, 4):
            part = jax.tree.map(lambda leaf, at=at: leaf[at : at + 2], data)
            found = evaluate(network, carry, part, rule=rule, loss=LOSS)
            carry = found.carry
            grads = found.grads if grads is None else jax.tree.map(jnp.add, grads, found.grads)
        return grads

    keys = jax.random.split(jax.random.key(1), keys)
    h = ft.init_carry(network, rule).h
    weights = jnp.asarray(
        weights_of(np.asarray(jax.vmap(partial(indicators, network, rule, h))(keys)))
    )
    each = jax.jit(lambda keys: lax.map(partial(total, rule), keys, batch_size=100))(keys)
    mean = jax.tree.map(lambda leaf: np.asarray(jnp.tensordot(weights, leaf, 1)), each)
    depth = dataclasses.replace(rule.credit, modules=0, by_memory=False)
    want = jax.tree.map(
        np.asarray, jax.jit(partial(total, dataclasses.replace(rule, credit=depth)))(keys[0])
    )
    assert apart(jax.tree.map(lambda leaf: np.asarray(leaf[0]), each), want) > 1e-3
    assert_equal(mean, want)


@pytest.mark.full
@pytest.mark.parametrize(("cell", "rule"), fast([("lru", ONE), ("lstm", TWO)]))
def test_a_start_in_a_chunk_begins_a_sequence_with_a_key_of_its_own(cell, rule):
    network, key = make_network(cell), jax.random.key(5)

    def summed(key, *parts, reset=NEVER):
        carry, total = ft.init_carry(network, rule, key=key), None
        for part in parts:
            *now, carry = run(network, rule, carry, slice(*part), reset=reset)
            total = now if total is None else jax.tree.map(np.add, total, now)
        return total

    first, second = (
        summed(key, (0, 2), (2, 3)),
        summed(jax.random.fold_in(key, NEXT_EPISODE), (3, 4), (4, 6)),
    )
    assert_equal(
        summed(key, (0, 2), (2, 4), (4, 6), reset=ODD), jax.tree.map(np.add, first, second)
    )


@pytest.mark.full
@pytest.mark.parametrize(("cell", "reset"), fast([("lru", NEVER), ("lstm", RESET)]))
def test_what_some_modules_carry_is_exact_above_those_that_are_whole(cell, reset):
    """Of lag one; at a higher lag it is made of some modules in between, and right on average."""
    every, some = (
        jax.tree.map(jnp.asarray, run_in_chunks(make_network(cell), each, (3, 3), reset=reset)[2])
        for each in (ALL, TWO)
    )
    size = jax.tree.leaves(every.h)[0].shape[1]
    for m, chosen in enumerate(some.modules.chosen, 1):
        assert len(set(chosen.tolist())) == 2 < size
        got, want = some.e.to(m, m - 1), every.e.to(m, m - 1)
        assert_equal(got, groups_.row(want, chosen))
        assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(got)) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize(
    ("rule", "lengths"),
    fast([(ONE, (6,)), (TWO_BY_MEMORY, (6,)), *((some(n), (3, 3)) for n in (9, 3))]),
    ids=str,
)
def test_whole_sequences_need_no_choice_and_enough_modules_are_all(rule, lengths):
    network = make_network()
    got = run(network, rule) if len(lengths) == 1 else run_in_chunks(network, rule, lengths)
    assert_equal(got[:2], run(network, ALL)[:2])


@pytest.mark.full
@pytest.mark.parametrize("rule", fast([ONE, TWO_BY_MEMORY]))
def test_each_sequence_and_each_stream_draws_its_own(rule):
    network, start = make_network(), ft.init_carry(make_network(), rule)
    *_, first = run(network, rule, start, slice(0, 2), reset=NEVER)
    *_, second = run(network, rule, first, slice(2, 4), reset=NEVER)
    assert (start.key == first.key).all() and (first.key == second.key).all()
    *_, third = run(network, rule, second, slice(4, 6), reset=RESET)
    assert (third.key != second.key).any()
    xs, ys = jnp.ones_like(XS), jnp.asarray(YS)  # streams that begin alike
    *_, after = ft.gradient(network, ft.init_carry(network, rule, 2), xs, ys, rule=rule, loss=LOSS)
    assert after.key.shape == (1, 2, 2) and (after.key[0, 0] != after.key[0, 1]).any()
    *_, unattached = ft.gradient(network, None, xs, ys, rule=rule, loss=LOSS)
    assert (unattached.key == after.key).all()
    assert (ft.init_carry(network, rule, 2, key=jax.random.key(3)).key != after.key).any()


@pytest.mark.full
@pytest.mark.parametrize("rule", fast([ONE, TWO_BY_MEMORY]))
def test_a_learner_goes_on(tmp_path, standard_promotion, rule):
    network = jax.tree.map(lambda leaf: leaf.astype("float32"), make_network())
    options = {"rule": rule, "optimizer": ft.adamw(1e-2, steps=9), "loss": LOSS, "warn": False}
    xs, ys = jnp.asarray(XS[0], jnp.float32), jnp.asarray(YS[0])
    plain = ft.Learner(network, **options)
    state, info = plain.step(plain.init(), xs[:3], ys[:3])
    key = state.carry.key
    ft.save(tmp_path / "a.safetensors", state)
    again = ft.load(tmp_path / "a.safetensors", plain)
    for one in (state, again):
        after, info = plain.step(one, xs[3:], ys[3:])
        assert info.accepted and (after.carry.key == key).all() and key.dtype == jnp.uint32
    ended, _ = plain.step(state, xs[3:], ys[3:], end=True)
    assert (ended.carry.key != key).any()  # the next sequence has its own


def test_what_is_drawn_is_counted():
    network = make_network()
    sizes = [ft.carry_size(network, ft.rule(f"online(depth=1, modules={k})")) for k in range(1, 4)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 3
    assert sizes[-1] == ft.carry_size(network, ALL) + 2  # the key
