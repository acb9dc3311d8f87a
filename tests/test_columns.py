"""Credit in depth by some columns of each matrix: exact for these, and on average the credit of all."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_depth import LOSS, RESET, XS, YS, apart, assert_equal, make_network, run, run_in_chunks

import foretrace as ft
from foretrace import _depth, _groups

ALL = ft.ONLINE.with_depth(1)
FEW = ALL.with_columns(2)
NEVER = np.zeros(6, bool)


def round_and_round(group, j, seed, number):
    """Choose columns that go once round every matrix, of at most four columns, in twelve seeds."""
    if not number:
        return None
    sizes = [leaf.shape[-1] if leaf.ndim > 1 else 0 for leaf in jax.tree.leaves(group)]
    return [None if n <= number else (jnp.arange(number) + seed.astype(int)) % n for n in sizes]


@pytest.mark.parametrize("rule", [FEW, ft.HYBRID.with_depth(2).with_columns(1)])
def test_the_mean_over_all_choices_is_the_credit_of_all_columns(monkeypatch, rule):
    for module in (_groups, _depth):
        monkeypatch.setattr(module, "draw_columns", round_and_round)
    network, data = make_network(), (jnp.asarray(XS[0]), jnp.asarray(YS[0]))

    @partial(jax.jit, static_argnames="rule")
    def learn(carry, part, rule):
        return ft.gradient(network, carry, *part, rule=rule, loss=LOSS)[1:]

    def total(rule, seed=None):
        carry, grads = ft.init_carry(network, rule), None
        if seed is not None:
            carry = carry._replace(e=carry.e._replace(seed=jnp.full(3, seed, jnp.uint32)))
        for part in (tuple(leaf[at : at + 2] for leaf in data) for at in (0, 2, 4)):
            now, carry = learn(carry, part, rule)
            grads = now if grads is None else jax.tree.map(jnp.add, grads, now)
        assert seed is None or (carry.e.seed == seed).all()
        return jax.tree.map(np.asarray, grads)

    want = total(dataclasses.replace(rule, columns=0))
    found = [total(rule, seed) for seed in range(12, 24)]
    assert apart(found[0], want) > 1e-3
    assert_equal(jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *found), want)


@pytest.mark.parametrize("depth", [1, 3])
def test_what_is_carried_is_carried_exactly(depth):
    network, rule = make_network(), ft.ONLINE.with_depth(depth)
    every, some = (
        jax.tree.map(jnp.asarray, run_in_chunks(network, each, (3, 3), reset=NEVER)[2])
        for each in (rule, rule.with_columns(2))
    )
    groups = _groups.split(network, rule)
    assert_equal(some.e.own, every.e.own)
    assert (some.e.seed == some.e.seed[0]).all() and some.e.seed[0] > 0
    narrow = 0
    for j, group in enumerate(groups[:-1]):
        columns = _groups.draw_columns(group, j, some.e.seed[0], 2)
        for m in range(max(j, 1), min(j + depth, 3) + 1):
            if m == j:
                continue
            got, want = (jax.tree.leaves(carry.e.to(m, j)) for carry in (some, every))
            for part, whole, chosen in zip(got, want, columns, strict=True):
                narrow += chosen is not None
                assert_equal(part, whole if chosen is None else whole[..., chosen])
    assert narrow > 4


def test_enough_columns_are_all():
    want, got = (run_in_chunks(make_network(), rule, (3, 3)) for rule in (ALL, ALL.with_columns(4)))
    assert_equal(got[:2], want[:2])


def test_whole_sequences_need_no_columns():
    assert_equal(run(make_network(), FEW)[:2], run(make_network(), ALL)[:2])


def test_each_sequence_and_each_stream_draws_its_own_columns():
    network = make_network()
    *_, first = run(network, FEW, ft.init_carry(network, FEW), slice(0, 2), reset=NEVER)
    *_, second = run(network, FEW, first, slice(2, 4), reset=NEVER)
    assert first.e.seed[0] == second.e.seed[0] != 0
    *_, third = run(network, FEW, second, slice(4, 6), reset=RESET)
    assert third.e.seed[0] not in (0, second.e.seed[0])
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    carry = ft.init_carry(network, FEW, 2)
    *_, after = ft.gradient(network, carry, xs, ys, rule=FEW, loss=LOSS)
    assert after.e.seed.shape == (3, 2) and after.e.seed[0, 0] != after.e.seed[0, 1]


def test_a_reset_makes_two_sequences_of_it():
    network = make_network()
    value, grads, carry = run_in_chunks(network, FEW, (2, 2), xs=XS[0][:4], ys=YS[0][:4], reset=NEVER, mask=np.ones(4))
    *_, after = run(network, FEW, carry, slice(4, 6))
    alone = run(network, FEW, ft.init_carry(network, FEW), slice(4, 6), reset=NEVER)[2]
    # The states, and hence the seed, are those of a sequence that begins there.
    assert_equal(jax.tree.map(np.asarray, after), jax.tree.map(np.asarray, alone))


def test_it_is_closer_to_backpropagation_than_without_depth():
    network = make_network()
    want = run(network, ft.BPTT, reset=NEVER)[1]

    def error(rule):
        got = run_in_chunks(network, rule, (2, 2, 2), reset=NEVER)[1]
        return sum(float(((a - b) ** 2).sum()) for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True))

    assert error(ALL) < error(ALL.with_columns(3)) < error(ft.ONLINE)


def test_a_learner_decays_rounds_watches_and_goes_on(tmp_path, standard_promotion):
    network = jax.tree.map(lambda leaf: leaf.astype("float32"), make_network())
    options = {"rule": FEW, "optimizer": ft.adamw(1e-2, steps=9), "loss": LOSS, "warn": False}
    xs, ys = jnp.asarray(XS[0], jnp.float32), jnp.asarray(YS[0])
    plain = ft.Learner(network, **options)
    state, info = plain.step(plain.init(), xs[:3], ys[:3])
    seed = state.carry.e.seed
    ft.save(tmp_path / "a.safetensors", state)
    again = ft.load(tmp_path / "a.safetensors", plain)
    for one in (state, again):
        after, info = plain.step(one, xs[3:], ys[3:])
        assert info.accepted and (after.carry.e.seed == seed).all() and seed.dtype == jnp.uint32
    for more in ({"sensitivity_decay": 0.9}, {"sensitivity_dtype": "bfloat16"}):
        learner = ft.Learner(network, **options, **more)
        state, _ = learner.step(learner.init(), xs[:3], ys[:3])
        after, info = learner.step(state, xs[3:], ys[3:])
        assert info.accepted and (after.carry.e.seed == seed).all()


def test_columns_are_counted():
    network = make_network()
    sizes = [ft.carry_size(network, ALL.with_columns(k)) for k in (1, 2, 3, 4)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 4
    assert sizes[-1] == ft.carry_size(network, ALL) + 3  # the seed


def test_bad_columns_are_named():
    with pytest.raises(ValueError, match="columns=-1"):
        ALL.with_columns(-1)
    with pytest.raises(ValueError, match="with_depth"):
        ft.ONLINE.with_columns(2)
    with pytest.raises(ValueError, match="independent modules"):
        run(make_network("gru"), ft.RTRL.with_depth(1).with_columns(2))
