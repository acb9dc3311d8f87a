"""Monitors of a network on a stream: against their definitions, and warnings once."""

import functools
import json

import equinox as eqx
import jax
import numpy as np
import pytest

import foretrace as ft
from foretrace._experts.network import PROBE
from foretrace._learner.forgetting import BLOCK, HELD
from foretrace.stream._monitors import LABELS, RANGES, Monitors

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]


@functools.cache
def made():
    cell = ft.LRU.factory(state_size=3)
    return ft.Network(2, 1, model_size=3, depth=2, cell=cell, key=jax.random.key(0))


def measure(change=lambda network: network, seen=True):
    network = change(made())
    carry = jax.tree.map(lambda leaf: leaf + 0.5, ft.init_carry(network, ft.ONLINE))
    inputs = np.random.default_rng(0).normal(size=(PROBE, 2)) if seen else None
    return Monitors().measure(network, carry, 0.25, inputs), network, carry


def norm(tree):
    return float(
        np.sqrt(sum(np.sum(np.abs(np.asarray(leaf)) ** 2) for leaf in jax.tree.leaves(tree)))
    )


def test_monitors_are_what_they_say():
    found, network, carry = measure()
    assert found["sensitivity_norm"] == pytest.approx(norm(carry.e), rel=1e-8)
    assert found["update_ratio"] == pytest.approx(0.25 / norm(network), rel=1e-8)
    assert found["dead_units"] == 0
    moduli = np.exp(-np.exp(np.asarray(network.blocks.cell.nu_log)))
    assert found["largest_modulus"] == pytest.approx(moduli.max(), rel=1e-8)
    assert found["smallest_modulus"] == pytest.approx(moduli.min(), rel=1e-8)


def test_units_whose_gate_is_shut_are_dead():
    def shut(network):
        """Values in front, gates behind: the first layer has one dead value, the second two."""
        linear = network.blocks.glu.linear
        parts = lambda one: (one.blocks.glu.linear.weight, one.blocks.glu.linear.bias)  # noqa: E731
        dead = linear.bias.at[0, 4].set(-1e3).at[1, 3:5].set(-1e3)
        return eqx.tree_at(parts, network, (linear.weight.at[0, 1].set(0.0), dead))

    assert measure(shut)[0]["dead_units"] == pytest.approx(3 / 6)
    assert "dead_units" not in measure(seen=False)[0]


def restored(monitors, *options):
    """Return monitors that were saved and restored."""
    again = Monitors(*options)
    again.restore(json.loads(json.dumps(monitors.to_json())))
    return again


def test_a_monitor_warns_once_until_it_came_back():
    monitors, high = Monitors(), RANGES["update_ratio"][1] * 2
    assert len(monitors.warnings({"update_ratio": high, "dead_units": 0.0})) == 1
    # Not measured is not back.
    seen = [{"update_ratio": high}, {}, {"update_ratio": high}, {"update_ratio": 1e-4}]
    for one in (restored(monitors), monitors):
        assert [len(one.warnings(values)) for values in [*seen, seen[0]]] == [0, 0, 0, 0, 1]
    assert "is nan" in monitors.warnings({"sensitivity_norm": float("nan")})[0]


def sums(rows, loss, **more):
    """Return sums of scores after rows of one log loss, or of one error beside the last value's."""
    of_each = {"rows": 1.0, "squared": loss**2, "mae" if more else "log_loss": loss} | more
    return {name: rows * value for name, value in of_each.items()}


BLOCKS = {
    "log loss was 0.6 ": (sums(BLOCK, 0.2), sums(BLOCK, 0.6)),
    "was 1.8 ": tuple(sums(BLOCK, loss, no_change_mae=10.0, coverage=0.9) for loss in (9.0, 18.0)),
}


@pytest.mark.parametrize("words", BLOCKS)
def test_a_level_of_the_scores_that_was_lost_is_told_once_and_survives_a_checkpoint(words):
    def look(monitors, block):
        """See blocks of rows with a level; return what was told."""
        assert all(monitors.look(block) for _ in range(HELD))
        return monitors.warnings({})

    monitors, (held, lost) = Monitors(), BLOCKS[words]
    assert not look(monitors, held)
    (line,) = look(again := restored(monitors), lost)
    assert "lost" in line and words in line and not look(again, lost)


def test_a_coverage_that_is_clearly_too_small_is_said_once():
    def look(monitors, labels, coverage):
        """See a block; return whether it ends, the recent coverage, and what is told."""
        ends = monitors.look(sums(labels, 1.0, no_change_mae=1.0, coverage=coverage))
        recent = monitors.recent
        return ends, recent, monitors.warnings(recent)

    monitors = Monitors(0.9)
    assert look(monitors, LABELS - 1, 0.9) == (False, {}, [])
    recent = {"recent_coverage": 0.9, "recent_labels": LABELS}
    assert look(monitors, LABELS, 0.9) == (True, recent, [])
    recent = {"recent_coverage": 0.765, "recent_labels": 1500}
    words = ["recent_coverage is 0.765, outside its range of 0.8051 to 1"]
    for one in (restored(monitors, 0.9), monitors):
        assert look(one, LABELS // 2, 0.495) == (False, recent, words)
        assert not one.warnings(one.recent)
    # Around exact predictions, intervals hold every label: no fault.
    assert look(Monitors(0.5), LABELS, 1.0)[2] == []
