"""Credit in depth by some modules: on average it is the credit of all."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import (
    LOSS,
    WEIGHTS,
    XS,
    YS,
    D,
    apart,
    assert_equal,
    make_network,
    run,
    run_in_chunks,
)
from jax import lax
from tiers import fast, slow

import foretrace as ft
from foretrace._credit.depth import NEXT_EPISODE
from foretrace._engine.data import Data
from foretrace._engine.gradient import evaluate
from foretrace._recurrence.chunk import Modules


def some(number):
    return ft.rule(f"online(depth=1, modules={number})")


ONE = some(1)
TWO_BY_MEMORY = ft.rule("online(depth=1, modules=2, by_memory=True)")
NEVER = np.zeros(6, bool)
ODD = np.arange(6) == 3  # inside the second chunk of two


def choices(size, number):
    """Return every choice of so many modules in each recurrence, and the probability of each.

    Each set has a probability of its own; a module weighs one over the probability of its sets.
    """
    sets = np.array([*itertools.combinations(range(size), number)])
    chances = np.random.default_rng(0).dirichlet(np.ones(len(sets)))
    included = np.array([chances[(sets == n).any(axis=1)].sum() for n in range(size)])
    which = np.array([*itertools.product(range(len(sets)), repeat=D)])
    modules = Modules(jnp.asarray(sets[which]), jnp.asarray(1 / included[sets[which]]))
    return modules, chances[which].prod(axis=1)


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "rule", "lengths"),
    fast(
        [
            ("lru", "online(depth=1, modules=1)", (1,) * 6),
            ("lru", "hybrid(depth=3, modules=2)", (2,) * 3),
            slow("lstm", "online(depth=2, groups=1, modules=2)", (1,) * 6),
        ]
    ),
)
def test_the_mean_over_all_choices_is_the_credit_of_all(cell, rule, lengths):
    network, rule = make_network(cell), ft.rule(rule)
    chunks = [np.reshape(a, (3, 2, *a.shape[1:])) for a in (XS[0], YS[0], WEIGHTS)]
    start = ft.init_carry(network, rule)
    assert not start.modules.weight.weak_type  # else the first step is compiled twice

    def total(modules):
        def chunk(carry, data):
            found = evaluate(network, carry, data, rule=rule, loss=LOSS)
            return found.carry, found.grads

        carry, chunked = start._replace(modules=modules), Data(*map(jnp.asarray, chunks))
        return jax.tree.map(lambda leaf: leaf.sum(0), lax.scan(chunk, carry, chunked)[1])

    modules, chances = choices(network.block(0).cell.state_size, rule.credit.modules)
    each = jax.jit(lambda every: lax.map(total, every))(modules)
    mean = jax.tree.map(lambda leaf: np.tensordot(chances, leaf, 1), each)
    every = dataclasses.replace(rule, credit=dataclasses.replace(rule.credit, modules=0))
    _, want, _ = run_in_chunks(network, every, lengths, reset=NEVER)
    assert apart(jax.tree.map(lambda leaf: np.asarray(leaf)[0], each), want) > 1e-3
    assert_equal(mean, want)


@pytest.mark.full
def test_a_start_in_a_chunk_begins_a_sequence_with_a_key_of_its_own():
    network, rule, key = make_network(), ONE, jax.random.key(5)

    def summed(key, *parts, reset=NEVER):
        carry, total = ft.init_carry(network, rule, key=key), None
        for part in parts:
            *now, carry = run(network, rule, carry, slice(*part), reset=reset)
            total = now if total is None else jax.tree.map(np.add, total, now)
        return total

    first = summed(key, (0, 2), (2, 3))
    second = summed(jax.random.fold_in(key, NEXT_EPISODE), (3, 4), (4, 6))
    both = summed(key, (0, 2), (2, 4), (4, 6), reset=ODD)
    assert_equal(both, jax.tree.map(np.add, first, second))


@pytest.mark.full
def test_whole_sequences_need_no_choice_and_enough_modules_are_all():
    network = make_network()
    want = run(network, ft.ONLINE.with_depth(1))[:2]
    assert_equal(run(network, TWO_BY_MEMORY)[:2], want)
    assert_equal(run_in_chunks(network, some(9), (3, 3))[:2], want)


@pytest.mark.full
def test_each_stream_draws_its_own():
    network, rule = make_network(), ONE
    xs, ys = jnp.ones_like(XS), jnp.asarray(YS)  # streams that begin alike
    *_, after = ft.gradient(network, ft.init_carry(network, rule, 2), xs, ys, rule=rule, loss=LOSS)
    assert after.key.shape == (1, 2, 2) and (after.key[0, 0] != after.key[0, 1]).any()
    *_, unattached = ft.gradient(network, None, xs, ys, rule=rule, loss=LOSS)
    assert (unattached.key == after.key).all()
    assert (ft.init_carry(network, rule, 2, key=jax.random.key(3)).key != after.key).any()
