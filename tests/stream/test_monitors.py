"""Monitors of a network on a stream: against their definitions, and warnings once."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import foretrace as ft
from foretrace._experts.network import PROBE
from foretrace._learner.forgetting import BLOCK, HELD
from foretrace.stream._monitors import LABELS, RANGES, Monitors

LRU = ft.LRU.factory(state_size=3)
pytestmark = pytest.mark.usefixtures("standard_promotion")


def measure(make_cell, change=lambda network: network, seen=True):
    network = change(ft.Network(2, 1, model_size=3, depth=2, cell=make_cell, key=jax.random.key(0)))
    carry = jax.tree.map(lambda leaf: leaf + 0.5, ft.init_carry(network, ft.ONLINE))
    inputs = np.random.default_rng(0).normal(size=(PROBE, 2)) if seen else None
    return Monitors().measure(network, carry, 0.25, inputs), network, carry


def norm(tree):
    return float(
        np.sqrt(sum(np.sum(np.abs(np.asarray(leaf)) ** 2) for leaf in jax.tree.leaves(tree)))
    )


@pytest.mark.parametrize("cell_name", ["lru", "gru"])
@pytest.mark.exact
def test_monitors_are_what_they_say(cell_name):
    found, network, carry = measure({"lru": LRU, "gru": ft.GRU.factory()}[cell_name])
    assert found["sensitivity_norm"] == pytest.approx(norm(carry.e), rel=1e-8)
    assert found["update_ratio"] == pytest.approx(0.25 / norm(network), rel=1e-8)
    assert found["dead_units"] == 0
    if cell_name == "lru":
        moduli = np.exp(-np.exp(np.asarray(network.blocks.cell.nu_log)))
        assert found["largest_modulus"] == pytest.approx(moduli.max(), rel=1e-8)
        assert found["smallest_modulus"] == pytest.approx(moduli.min(), rel=1e-8)
    else:
        assert "largest_modulus" not in found


def test_units_whose_gate_is_shut_are_dead():
    def shut(network):
        weight, bias = network.blocks.glu.linear.weight, network.blocks.glu.linear.bias
        # Values in front, gates behind: the first layer has one dead value, the second two shut
        # gates.
        weight = weight.at[0, 1].set(0.0)
        return jax.tree.map(
            lambda leaf: (
                weight
                if leaf is network.blocks.glu.linear.weight
                else bias.at[0, 4].set(-1e3).at[1, 3:5].set(-1e3)
                if leaf is network.blocks.glu.linear.bias
                else leaf
            ),
            network,
        )

    assert measure(LRU, shut)[0]["dead_units"] == pytest.approx(3 / 6)
    assert "dead_units" not in measure(LRU, seen=False)[0]


def test_a_monitor_warns_once_until_it_came_back():
    monitors, high = Monitors(), RANGES["update_ratio"][1] * 2
    assert len(monitors.warnings({"update_ratio": high, "dead_units": 0.0})) == 1
    again = Monitors()
    again.restore(json.loads(json.dumps(monitors.to_json())))
    for one in (monitors, again):
        assert one.warnings({"update_ratio": high}) == []
        # Not measured is not back.
        assert one.warnings({}) == [] and one.warnings({"update_ratio": high}) == []
        assert (
            one.warnings({"update_ratio": 1e-4}) == []
            and len(one.warnings({"update_ratio": high})) == 1
        )
    assert "is nan" in monitors.warnings({"sensitivity_norm": float("nan")})[0]


def test_a_broken_network_is_named_and_harms_nothing():
    def break_it(network):
        return jax.tree.map(lambda leaf: leaf * jnp.nan, network)

    found, _, _ = measure(LRU, break_it)
    assert np.isnan(found["largest_modulus"]) and len(Monitors().warnings(found)) >= 2


def sums(rows, loss, **more):
    """Return sums of scores after rows of one log loss, or of one error beside the last value's."""
    of_each = {"rows": 1.0, "squared": loss**2, "log_loss": loss}
    if more:
        of_each = {"rows": 1.0, "squared": loss**2, "mae": loss, "coverage": 0.0} | more
    return {name: rows * value for name, value in of_each.items()}


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_a_level_of_the_scores_that_was_lost_is_told_once_and_survives_a_checkpoint(kind):
    def look(monitors, lost):
        """See blocks of rows with a level; return what was told."""
        block = sums(BLOCK, 0.6 if lost else 0.2)
        if kind == "numbers":
            block = sums(BLOCK, 9.0 + 9 * lost, no_change_mae=10.0)
        assert all(monitors.look(block) for _ in range(HELD))
        return monitors.warnings({})

    monitors = Monitors()
    assert not look(monitors, False)
    again = Monitors()
    again.restore(json.loads(json.dumps(monitors.to_json())))
    (line,) = look(again, True)
    assert "lost" in line and ("log loss was 0.6 " if kind == "classes" else "was 1.8 ") in line
    assert not look(again, True)


def test_a_coverage_that_is_clearly_too_small_is_said_once():
    monitors = Monitors(0.9)
    few = sums(LABELS - 1, 1.0, no_change_mae=1.0, coverage=0.9)
    assert not monitors.look(few) and monitors.recent_coverage() == {}
    assert monitors.look(sums(LABELS, 1.0, no_change_mae=1.0, coverage=0.9))
    assert monitors.recent_coverage() == {"recent_coverage": 0.9, "recent_labels": LABELS}
    assert not monitors.warnings(monitors.recent_coverage())
    again = Monitors(0.9)
    again.restore(json.loads(json.dumps(monitors.to_json())))
    for one in (monitors, again):
        # A block that is not whole counts with the one before it.
        assert not one.look(sums(LABELS // 2, 1.0, no_change_mae=1.0, coverage=0.495))
        assert one.recent_coverage() == {"recent_coverage": 0.765, "recent_labels": 1500}
        lines = one.warnings(one.recent_coverage())
        assert lines == ["recent_coverage is 0.765, outside its range of 0.8051 to 1"]
        assert not one.warnings(one.recent_coverage())


def test_exact_predictions_hold_every_label_and_that_is_no_fault():
    monitors = Monitors(0.5)
    monitors.look(sums(LABELS, 0.0, no_change_mae=0.0, coverage=1.0))
    assert not monitors.warnings(monitors.recent_coverage())
