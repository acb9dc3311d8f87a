"""Credit in depth for some groups alone: the definition for them, the rule for the others."""

import dataclasses
from functools import partial

import jax
import pytest
from cases import CELLS
from gradients import D, apart, assert_equal, make_network, run, run_in_chunks
from test_depth import by_definition
from tiers import fast, slow

import foretrace as ft
from foretrace import experiment
from foretrace._rule import Depth
from foretrace._runs.config_json import from_json, to_json
from foretrace.paper._records import identity

SOME_PARTITIONS = ((1, 2, 3), (3, 2, 1))
CASES = [
    ("lru", ft.rule("online(depth=1, groups=1)"), ((3, 3),)),
    ("lru", ft.rule("online(depth=1, groups=1)"), SOME_PARTITIONS),
    ("lru", ft.rule(f"online(depth={D}, groups=1)"), SOME_PARTITIONS),
    slow("lstm", ft.rule("online(depth=2, groups=2)"), SOME_PARTITIONS),
    ("gru", ft.rule("rtrl(depth=2, groups=2)"), SOME_PARTITIONS),
    slow("lru", ft.rule("online(depth=2, groups=3)"), SOME_PARTITIONS),
]


@pytest.mark.full
@pytest.mark.parametrize(("cell", "rule", "chunkings"), fast(CASES), ids=str)
def test_some_groups_have_the_depth_and_the_others_the_rule_itself(cell, rule, chunkings):
    credit = rule.credit
    network, part = (
        make_network(cell),
        {"depth": credit.depth, "groups": credit.groups, "own_only": not rule.others},
    )
    want = by_definition(network, **part)
    *whole, carry = run(network, rule)
    assert_equal(whole, want)
    for lengths in chunkings:
        assert_equal(run_in_chunks(network, rule, lengths), (*want, carry))
    for other in ({"groups": credit.groups - 1}, {"depth": credit.depth - 1}):
        assert apart(want[1], by_definition(network, **(part | other))[1]) > 1e-6
    more = apart(want[1], by_definition(network, **(part | {"groups": credit.groups + 1}))[1])
    assert more > 1e-6 if credit.groups < D else more == 0  # nothing is above the last group


@pytest.mark.full
def test_groups_follow_the_norm():
    network, rule = make_network(norm="post"), ft.rule("online(depth=2, groups=2)")
    assert_equal(
        run_in_chunks(network, rule, (3, 2, 1))[:2],
        by_definition(network, 2, norm="post", groups=2),
    )


@pytest.mark.full
def test_the_encoder_alone_has_the_whole_gradient_at_the_full_depth():
    network, rule = make_network(), ft.rule(f"hybrid(depth={D}, groups=1)")
    _, exact, _ = run(network, ft.BPTT)
    _, got, carry = run_in_chunks(network, rule, (2, 3, 1))
    assert_equal(got.encoder, exact.encoder)
    _, same, _ = run_in_chunks(network, ft.HYBRID, (2, 3, 1))
    assert_equal((got.blocks.cell, got.decoder), (same.blocks.cell, same.decoder))
    assert ft.carry_size(network, rule) < ft.carry_size(network, ft.HYBRID.with_depth(1)) / 2
    assert jax.tree.leaves(carry.e.between) == []


def test_groups_are_counted_and_refused():
    network, sizes = make_network(), []
    for groups in range(1, D + 2):
        sizes.append(ft.carry_size(network, ft.rule(f"online(depth={D}, groups={groups})")))
    assert sizes == sorted(sizes) and len(set(sizes[:D])) == D
    everything = ft.carry_size(network, ft.ONLINE.with_depth(D))
    assert sizes[-1] == sizes[-2] == everything  # nothing is above the last group
    assert ft.carry_size(network, ft.rule(f"online(depth={D}, groups=99)")) == everything
    with pytest.raises(ValueError, match="groups=-1"):
        Depth(1, groups=-1)
    with pytest.raises(ValueError, match=r"groups=1.*needs a depth of at least 1"):
        ft.rule("online(groups=1)")


@pytest.mark.parametrize(
    "cell_name", fast(["lstm", *(name for name in CELLS if name != "lstm")]), indirect=True
)
def test_every_cell_has_the_gradient_of_its_past_at_the_full_depth(make_cell):
    network = ft.Network(2, 3, model_size=4, depth=2, cell=make_cell, key=jax.random.key(1))
    rule = (ft.ONLINE if network.block(0).cell.independent else ft.RTRL).with_depth(2)
    assert_equal(run_in_chunks(network, rule, (3, 3))[:2], run(network, ft.BPTT)[:2])


def test_a_configuration_gives_some_groups_credit():
    task = experiment.Copy(pattern_length=3, padding=1, bits=2)
    plain = experiment.Config(task=task, rule="online(depth=2)")
    config = dataclasses.replace(plain, rule="online(depth=2, groups=1)")
    assert experiment.build(config).learner.rule == ft.rule("online(depth=2, groups=1)")
    assert from_json(experiment.Config, to_json(config)) == config
    of = partial(identity, "table1", "smoke", "an entry", "report")
    assert of(config) != of(plain)
