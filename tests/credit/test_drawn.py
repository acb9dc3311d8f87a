"""Credit in depth by some columns and some modules: exact for these, and on average the credit of all."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import LOSS, RESET, WEIGHTS, XS, YS, apart, assert_equal, make_network, run, run_in_chunks
from tiers import fast

import foretrace as ft
from foretrace import experiment
from foretrace._credit import depth as _depth
from foretrace._credit import groups as _groups
from foretrace._engine.gradient import evaluate
from foretrace._runs.config_json import from_json, to_json
from foretrace.experiment._build import rule_of
from foretrace.paper._records import identity

ALL = ft.ONLINE.with_depth(1)
FEW = ALL.with_columns(2)
NEVER = np.zeros(6, bool)
ODD = np.arange(6) == 3  # inside the second chunk of two


def round_and_round(group, j, seed, number):
    """Choose columns that go once round every matrix, of at most four columns, in twelve seeds."""
    if not number:
        return None
    sizes = [leaf.shape[-1] if leaf.ndim > 1 else 0 for leaf in jax.tree.leaves(group)]
    return [None if n <= number else (jnp.arange(number) + (seed - _groups.DRAWN).astype(int)) % n for n in sizes]


def each_with_each(h, m, seed, number):
    """Choose modules so that 12 n^3 seeds have every choice of n in three recurrences with every choice of columns."""
    if not number:
        return None
    size = jax.tree.leaves(h)[0].size
    return (jnp.arange(number) + (seed - _groups.DRAWN).astype(int) // (12 * size ** (m - 1))) % size


@pytest.mark.parametrize(
    ("cell", "rule", "seeds", "reset"),
    fast(
        [
            ("lru", FEW, range(12), NEVER),
            ("lru", ALL.with_modules(1), range(0, 12 * 27, 12), ODD),
            ("lru", ft.HYBRID.with_depth(2).with_columns(1), range(12), NEVER),
            ("lru", ft.HYBRID.with_depth(3).with_modules(2), range(0, 12 * 27, 12), NEVER),
            ("lru", ft.ONLINE.with_depth(2).with_columns(2).with_modules(1), range(12 * 27), NEVER),
            ("lru", ft.ONLINE.with_depth(3).with_groups(1).with_modules(1), range(0, 12 * 27, 12), NEVER),
            ("lstm", ft.ONLINE.with_depth(2).with_modules(1), range(0, 12 * 64, 12), ODD),
        ],
        2,
    ),
    ids=lambda value: str(value) if isinstance(value, str | ft.LearningRule) else "",
)
def test_the_mean_over_all_choices_is_the_credit_of_all(monkeypatch, cell, rule, seeds, reset):
    for module in (_groups, _depth):
        monkeypatch.setattr(module, "draw_columns", round_and_round)
        monkeypatch.setattr(module, "draw_modules", each_with_each)
    monkeypatch.setattr(_depth, "_begun", lambda chunk: chunk.e.seed)  # a start draws nothing new
    network, data = make_network(cell), tuple(map(jnp.asarray, (XS[0], YS[0], WEIGHTS, reset)))

    @partial(jax.jit, static_argnames="rule")
    def total(seed, rule):
        carry, grads = ft.init_carry(network, rule), []
        if rule.drawn:
            carry = carry._replace(e=carry.e._replace(seed=jnp.full(3, seed, jnp.uint32)))
        for part in (tuple(leaf[at : at + 2] for leaf in data) for at in (0, 2, 4)):
            # Not by `ft.gradient`, whose programs outlive this choice.
            found = evaluate(network, carry, *part, rule=rule, loss=LOSS)
            carry = found.carry
            grads.append(found.grads)
        return jax.tree.map(lambda *parts: sum(parts), *grads), carry.e.seed

    want, _ = total(jnp.uint32(0), dataclasses.replace(rule, columns=0, modules=0))
    drawn = [_groups.DRAWN + np.uint32(shift) for shift in seeds]
    found = [total(jnp.uint32(seed), rule) for seed in drawn]
    assert all((kept == seed).all() for seed, (_, kept) in zip(drawn, found, strict=True))
    assert apart(found[0][0], jax.tree.map(np.asarray, want)) > 1e-3
    mean = jax.tree.map(lambda *leaves: np.mean(leaves, axis=0), *[grads for grads, _ in found])
    assert_equal(mean, jax.tree.map(np.asarray, want))


@pytest.mark.full
@pytest.mark.parametrize(
    ("cell", "rule", "reset", "norm"),
    fast(
        [
            ("lru", ft.ONLINE.with_depth(3), NEVER, "pre"),
            ("lstm", ft.ONLINE.with_depth(1), RESET, "post"),
            ("lru", ft.HYBRID.with_depth(1), RESET, "pre"),
        ]
    ),
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


@pytest.mark.full
@pytest.mark.parametrize(("cell", "reset"), fast([("lru", NEVER), ("lstm", RESET)]))
def test_what_some_modules_carry_is_exact_above_those_that_are_whole(cell, reset):
    """Of lag one; at a higher lag it is made of some modules in between, and right on average."""
    rule = ft.ONLINE.with_depth(1)
    every, some = (
        jax.tree.map(jnp.asarray, run_in_chunks(make_network(cell), each, (3, 3), reset=reset)[2])
        for each in (rule, rule.with_modules(2))
    )
    size = jax.tree.leaves(every.h)[0].shape[1]
    for m in range(1, 4):
        chosen = _groups.draw_modules(_groups.row(every.h, m - 1), m, some.e.seed[0], 2)
        assert len(set(chosen.tolist())) == 2 < size
        got, want = some.e.to(m, m - 1), every.e.to(m, m - 1)
        assert_equal(got, _groups.row(want, chosen))
        assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(got)) > 1e-3


@pytest.mark.full
@pytest.mark.parametrize("rule", fast([ALL.with_columns(9).with_modules(9), ALL.with_columns(4), ALL.with_modules(3)]))
def test_enough_are_all(rule):
    want, got = (run_in_chunks(make_network(), each, (3, 3)) for each in (ALL, rule))
    assert_equal(got[:2], want[:2])


@pytest.mark.parametrize("rule", fast([ALL.with_columns(2).with_modules(1), FEW, ALL.with_modules(1)]))
def test_whole_sequences_need_no_choice(rule):
    assert_equal(run(make_network(), rule)[:2], run(make_network(), ALL)[:2])


@pytest.mark.parametrize("rule", fast([ALL.with_columns(2).with_modules(1), FEW, ALL.with_modules(1)]))
def test_each_sequence_and_each_stream_draws_its_own(rule):
    network = make_network()
    *_, first = run(network, rule, ft.init_carry(network, rule), slice(0, 2), reset=NEVER)
    *_, second = run(network, rule, first, slice(2, 4), reset=NEVER)
    assert first.e.seed[0] == second.e.seed[0] >= _groups.DRAWN
    *_, third = run(network, rule, second, slice(4, 6), reset=RESET)
    assert _groups.DRAWN <= third.e.seed[0] != second.e.seed[0]
    xs, ys = jnp.ones_like(XS), jnp.asarray(YS)  # streams that begin alike
    carry = ft.init_carry(network, rule, 2)
    *_, after = ft.gradient(network, carry, xs, ys, rule=rule, loss=LOSS)
    assert after.e.seed.shape == (3, 2) and after.e.seed[0, 0] != after.e.seed[0, 1] >= _groups.DRAWN


@pytest.mark.full
def test_it_is_closer_to_backpropagation_than_without_depth():
    network = make_network()
    want = run(network, ft.BPTT, reset=NEVER)[1]

    def error(rule):
        got = run_in_chunks(network, rule, (2, 2, 2), reset=NEVER)[1]
        return sum(float(((a - b) ** 2).sum()) for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True))

    assert error(ALL) < error(ALL.with_columns(3)) < error(ft.ONLINE)


@pytest.mark.parametrize("rule", fast([ALL.with_columns(2).with_modules(1), FEW]))
def test_a_learner_decays_rounds_watches_and_goes_on(tmp_path, standard_promotion, rule):
    network = jax.tree.map(lambda leaf: leaf.astype("float32"), make_network())
    options = {"rule": rule, "optimizer": ft.adamw(1e-2, steps=9), "loss": LOSS, "warn": False}
    xs, ys = jnp.asarray(XS[0], jnp.float32), jnp.asarray(YS[0])
    plain = ft.Learner(network, **options)
    state, info = plain.step(plain.init(), xs[:3], ys[:3])
    seed = state.carry.e.seed
    ft.save(tmp_path / "a.safetensors", state)
    again = ft.load(tmp_path / "a.safetensors", plain)
    for one in (state, again):
        after, info = plain.step(one, xs[3:], ys[3:])
        assert info.accepted and (after.carry.e.seed == seed).all() and seed.dtype == jnp.uint32
    learner = ft.Learner(network, **options, sensitivity_dtype="bfloat16")
    state, _ = learner.step(learner.init(), xs[:3], ys[:3])
    after, info = learner.step(state, xs[3:], ys[3:])
    assert info.accepted and (after.carry.e.seed == seed).all()


@pytest.mark.parametrize(("thin", "full"), [(ALL.with_columns, 4), (ALL.with_modules, 3)])
def test_what_is_drawn_is_counted(thin, full):
    network = make_network()
    sizes = [ft.carry_size(network, thin(k)) for k in range(1, full + 1)]
    assert sizes == sorted(sizes) and len(set(sizes)) == full
    assert sizes[-1] == ft.carry_size(network, ALL) + 3  # the seed


@pytest.mark.parametrize("name", ["columns", "modules"])
def test_bad_numbers_are_named(name):
    def thin(rule, number):
        return getattr(rule, f"with_{name}")(number)

    with pytest.raises(ValueError, match=f"{name}=-1"):
        thin(ALL, -1)
    with pytest.raises(ValueError, match=f"{name}=True"):
        thin(ALL, True)
    with pytest.raises(ValueError, match="with_depth"):
        thin(ft.ONLINE, 2)
    with pytest.raises(ValueError, match="independent modules"):
        ft.carry_size(make_network("gru"), thin(ft.RTRL.with_depth(1), 2))
    options = {"optimizer": ft.adamw(1e-2, steps=9), "loss": LOSS}
    with pytest.raises(ValueError, match="independent modules"):
        ft.Learner(make_network("gru"), rule=thin(ft.RTRL.with_depth(1), 2), **options)
    with pytest.raises(ValueError, match="whole sequences"):
        ft.Learner(make_network(), rule=thin(ALL, 2), whole_sequences=True, **options)


@pytest.mark.full
def test_a_prediction_in_between_keeps_the_columns(standard_promotion):
    network = make_network()
    learner = ft.Learner(network, rule=FEW, optimizer=ft.adamw(1e-2, steps=9), loss=LOSS, warn=False)
    state, _ = learner.step(learner.init(), jnp.asarray(XS[0, :3]), jnp.asarray(YS[0, :3]))
    _, after = learner.predict(state, jnp.asarray(XS[0, 3:]), sensitivity=False)
    assert (after.carry.e.seed == state.carry.e.seed).all()
    assert not any(jnp.any(leaf) for leaf in jax.tree.leaves(after.carry.e._replace(seed=None)))


def test_a_configuration_has_them_for_runs_in_chunks():
    task = experiment.Copy(pattern_length=3, padding=1, bits=2)
    plain = experiment.Config(task=task, credit_depth=1, chunk=4)
    config = dataclasses.replace(plain, credit_columns=2, credit_modules=3)
    assert rule_of(config) == ft.ONLINE.with_depth(1).with_columns(2).with_modules(3)
    assert from_json(experiment.Config, to_json(config)) == config
    of = partial(identity, "table1", "smoke", "an entry", "report")
    assert of(config) != of(plain)
    with pytest.raises(ValueError, match="credit_columns=2 needs credit_depth"):
        dataclasses.replace(config, credit_depth=0)
    for name, value in (("credit_columns", 2), ("credit_modules", 3)):
        with pytest.raises(ValueError, match=f"{name}={value} is for runs in chunks"):
            experiment.build(dataclasses.replace(plain, chunk=None, **{name: value}))
