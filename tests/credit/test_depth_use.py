"""Credit in depth in use: configurations, learners, refusals; laws: `test_depth.py`."""

import dataclasses
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import LOSS, XS, YS, D, assert_equal, make_network, run

import foretrace as ft
from foretrace import experiment
from foretrace._rule import Depth
from foretrace._runs.config_json import from_json, to_json
from foretrace.paper._records import identity

DEEP = ft.ONLINE.with_depth(1)
TASK = experiment.Copy(pattern_length=3, padding=1, bits=2)
PLAIN = experiment.Config(task=TASK, rule="online(depth=1)", chunk=4)


def test_a_depth_is_part_of_a_rule():
    assert ft.ONLINE.with_depth(0) == ft.ONLINE
    assert str(ft.RTRL.with_depth(2)) == "RTRL(depth=2)"
    assert ft.ONLINE.with_depth(2).with_depth(1) == DEEP


@pytest.mark.parametrize(
    "rule",
    [
        " RTRL( depth=2 )",
        "online(depth=2, groups=1)",
        "ONLINE(depth=1, modules=3, by_memory=True)",
    ],
)
def test_a_configuration_has_it(rule):
    config = dataclasses.replace(PLAIN, rule=rule)
    assert experiment.build(config).learner.rule == ft.rule(rule)
    assert config.rule == str(ft.rule(rule)).lower()
    assert from_json(experiment.Config, to_json(config)) == config
    of = partial(identity, "table1", "cpu", "an entry", "report")
    assert of(config) != of(PLAIN)


CHANGED = partial(dataclasses.replace, PLAIN)
REFUSALS = [
    *((partial(ft.ONLINE.with_depth, wrong), "depth") for wrong in (-1, 1.0, True, "1")),
    *(
        (partial(rule.with_depth, 1), "carries none")
        for rule in (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.BPTT)
    ),
    (partial(Depth, 1, groups=-1), "groups=-1"),
    (partial(Depth, 1, modules=-1), "modules=-1"),
    (partial(Depth, 1, modules=True), "modules=True"),
    (partial(Depth, 1, modules=2, by_memory=1), "by_memory=1 must be True or False"),
    (
        partial(ft.rule, "online(groups=1)"),
        "groups=1 is a part of credit in depth, which needs a depth",
    ),
    (partial(CHANGED, rule="online(depth=-1)"), "rule='online(depth=-1)': 'depth=-1' is not an"),
    (partial(CHANGED, rule="bptt(depth=1)"), "carries none"),
    (partial(CHANGED, rule="online(depth=1, by_memory=true)"), "by_memory=True says how modules"),
    (partial(CHANGED, rule="online(modules=3)"), "modules=3 is a part of credit in depth"),
    (
        lambda: experiment.build(CHANGED(rule="online(depth=1, modules=3)", chunk=None)),
        "modules are for runs in chunks",
    ),
    (
        lambda: ft.carry_size(make_network("gru"), ft.rule("rtrl(depth=1, modules=2)")),
        "independent modules",
    ),
    (
        lambda: ft.testing.gradient_by_definition(None, XS, YS, rule=DEEP, loss=LOSS),
        "depth",
    ),
    *(
        (
            lambda had=had: run(make_network(), DEEP, ft.init_carry(make_network(), had)),
            "carry does",
        )
        for had in (ft.ONLINE, ft.ONLINE.with_depth(2))
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS)
def test_the_fault_is_named(call, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        call()


@pytest.mark.full
def test_a_learner_updates_and_goes_on_from_a_checkpoint(tmp_path, standard_promotion):
    """One update a sequence equals backpropagation through time; a saved state continues alike."""
    make = partial(ft.Learner, make_network(), optimizer=optax.sgd(0.1), loss=LOSS)
    online = make(rule=ft.ONLINE.with_depth(D), accumulate=True)
    exact = make(rule=ft.BPTT, whole_sequences=True)
    xs, ys = jnp.asarray(XS[0]), jnp.asarray(YS[0])
    state, _ = online.step(online.init(), xs[:3], ys[:3])
    ft.save(tmp_path / "state", state)
    want, _ = exact.step(exact.init(), xs, ys)
    for before in (state, ft.load(tmp_path / "state", online)):
        after, info = online.step(before, xs[3:], ys[3:], end=True)
        assert info.accepted
        assert_equal(after.network, want.network)
        assert not any(np.any(leaf) for leaf in jax.tree.leaves(after.carry))


@pytest.mark.full
@pytest.mark.parametrize("rule", ["online(depth=1)", "online(depth=1, modules=1)"])
def test_prediction_moves_the_sensitivities_on(rule):
    network, xs, ys = make_network(), jnp.asarray(XS[0]), jnp.asarray(YS[0])
    learner = ft.Learner(network, rule=rule, optimizer=optax.sgd(0.1), loss=LOSS)
    start = learner.init()
    _, after = learner.predict(start, xs)
    _, _, carry = ft.gradient(network, start.carry, xs, ys, rule=rule, loss=LOSS)
    assert_equal(after.carry, carry)
    _, plain = learner.predict(after, xs, sensitivity=False)
    assert_equal(plain.carry.h, learner.predict(after, xs)[1].carry.h)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(plain.carry.e))
    assert jax.tree.all(jax.tree.map(lambda a, b: (a == b).all(), plain.carry.key, carry.key))
