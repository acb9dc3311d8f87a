"""Credit in depth by some columns of each matrix: exact for these, and on average the credit of all."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_depth import LOSS, RESET, XS, YS, apart, assert_equal, make_network, run, run_in_chunks

import foretrace as ft
from foretrace import _depth, _groups, experiment
from foretrace._build import rule_of
from foretrace._config import from_json, to_json
from foretrace._gradient import evaluate
from foretrace._records import identity

ALL = ft.ONLINE.with_depth(1)
FEW = ALL.with_columns(2)
NEVER = np.zeros(6, bool)


def round_and_round(group, j, seed, number):
    """Choose columns that go once round every matrix, of at most four columns, in twelve seeds."""
    if not number:
        return None
    sizes = [leaf.shape[-1] if leaf.ndim > 1 else 0 for leaf in jax.tree.leaves(group)]
    return [None if n <= number else (jnp.arange(number) + (seed - _groups.DRAWN).astype(int)) % n for n in sizes]


@pytest.mark.parametrize("rule", [FEW, ft.HYBRID.with_depth(2).with_columns(1)])
def test_the_mean_over_all_choices_is_the_credit_of_all_columns(monkeypatch, rule):
    for module in (_groups, _depth):
        monkeypatch.setattr(module, "draw_columns", round_and_round)
    network, data = make_network(), (jnp.asarray(XS[0]), jnp.asarray(YS[0]))

    @partial(jax.jit, static_argnames="rule")
    def learn(carry, part, rule):
        # Not by `ft.gradient`, whose programs outlive this choice of columns.
        found = evaluate(network, carry, *part, rule=rule, loss=LOSS)
        return found.grads, found.carry

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
    found = [total(rule, _groups.DRAWN + np.uint32(shift)) for shift in range(12)]
    assert apart(found[0], want) > 1e-3
    assert_equal(jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *found), want)


@pytest.mark.parametrize(
    ("cell", "rule", "reset", "norm"),
    [
        ("lru", ft.ONLINE.with_depth(3), NEVER, "pre"),
        ("lstm", ft.ONLINE.with_depth(1), RESET, "post"),
        ("lru", ft.HYBRID.with_depth(1), RESET, "pre"),
    ],
)
def test_what_is_carried_is_carried_exactly(cell, rule, reset, norm):
    network, depth = make_network(cell, norm=norm), rule.depth
    every, some = (
        jax.tree.map(jnp.asarray, run_in_chunks(network, each, (3, 3), reset=reset)[2])
        for each in (rule, rule.with_columns(2))
    )
    groups = _groups.split(network, rule)
    assert_equal(some.e.own, every.e.own)
    assert (some.e.seed == some.e.seed[0]).all() and some.e.seed[0] >= _groups.DRAWN
    narrow = 0
    for j, group in enumerate(groups[:-1]):
        columns = _groups.draw_columns(group, j, some.e.seed[0], 2)
        for m in range(max(j, 1), min(j + depth, 3) + 1):
            if m == j:
                continue
            got, want = (jax.tree.leaves(carry.e.to(m, j)) for carry in (some, every))
            # One after another for each number of a module's state.
            for part, whole, chosen in zip(got, want, columns * (len(got) // len(columns)), strict=True):
                narrow += chosen is not None
                assert_equal(part, whole if chosen is None else whole[..., chosen])
    assert narrow >= 4


def test_enough_columns_are_all():
    want, got = (run_in_chunks(make_network(), rule, (3, 3)) for rule in (ALL, ALL.with_columns(4)))
    assert_equal(got[:2], want[:2])


def test_whole_sequences_need_no_columns():
    assert_equal(run(make_network(), FEW)[:2], run(make_network(), ALL)[:2])


def test_each_sequence_and_each_stream_draws_its_own_columns():
    network = make_network()
    *_, first = run(network, FEW, ft.init_carry(network, FEW), slice(0, 2), reset=NEVER)
    *_, second = run(network, FEW, first, slice(2, 4), reset=NEVER)
    assert first.e.seed[0] == second.e.seed[0] >= _groups.DRAWN
    *_, third = run(network, FEW, second, slice(4, 6), reset=RESET)
    assert _groups.DRAWN <= third.e.seed[0] != second.e.seed[0]
    xs, ys = jnp.ones_like(XS), jnp.asarray(YS)  # streams that begin alike
    carry = ft.init_carry(network, FEW, 2)
    *_, after = ft.gradient(network, carry, xs, ys, rule=FEW, loss=LOSS)
    assert after.e.seed.shape == (3, 2) and after.e.seed[0, 0] != after.e.seed[0, 1] >= _groups.DRAWN


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
        ft.carry_size(make_network("gru"), ft.RTRL.with_depth(1).with_columns(2))


def test_a_prediction_in_between_keeps_the_columns(standard_promotion):
    network = make_network()
    learner = ft.Learner(network, rule=FEW, optimizer=ft.adamw(1e-2, steps=9), loss=LOSS, warn=False)
    state, _ = learner.step(learner.init(), jnp.asarray(XS[0, :3]), jnp.asarray(YS[0, :3]))
    _, after = learner.predict(state, jnp.asarray(XS[0, 3:]), sensitivity=False)
    assert (after.carry.e.seed == state.carry.e.seed).all()
    assert not any(jnp.any(leaf) for leaf in jax.tree.leaves(after.carry.e._replace(seed=None)))


def test_a_configuration_has_columns_for_runs_in_chunks():
    task = experiment.Copy(pattern_length=3, padding=1, bits=2)
    plain = experiment.Config(task=task, credit_depth=1, chunk=4)
    config = dataclasses.replace(plain, credit_columns=2)
    assert rule_of(config) == ft.ONLINE.with_depth(1).with_columns(2)
    assert from_json(to_json(config)) == config
    of = partial(identity, "table1", "smoke", "an entry", "report")
    assert of(config) != of(plain)
    with pytest.raises(ValueError, match="credit_columns=2 needs credit_depth"):
        dataclasses.replace(config, credit_depth=0)
    with pytest.raises(ValueError, match="credit_columns=2 is for runs in chunks"):
        experiment.build(dataclasses.replace(config, chunk=None))
