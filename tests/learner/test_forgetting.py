"""The watch over a loss reports a lost level once, and no noise, jumps or slow learning."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft
from foretrace._learner import forgetting, learner
from foretrace._learner.forgetting import BLOCK, HELD, LossWatch

pytestmark = pytest.mark.usefixtures("standard_promotion")


def told(losses, watch=None):
    watch = LossWatch() if watch is None else watch
    return [i for i, loss in enumerate(losses) if watch.add(loss) is not None]


def errors(*levels):
    """Return errors of a classifier, 1 for a wrong answer: a share of them for so many blocks."""
    draw = np.random.default_rng(0)
    return [float(error < share) for share, n in levels for error in draw.random(n * BLOCK)]


def test_a_level_that_was_held_and_lost_is_told_once():
    assert told(errors((0.5, 2), (0.15, 20), (0.4, 40))) == [(2 + 20 + HELD) * BLOCK - 1]
    assert len(told(errors(*[(0.15, 10), (0.4, 10)] * 2))) == 2
    # Chance behind what was learned slowly.
    slowly = [*np.linspace(0.5, 0.166, 30), *np.linspace(0.166, 0.4, 60)]
    assert len(told(errors(*((share, 1) for share in slowly)))) == 1


@pytest.mark.parametrize(
    "kind", ["errors", "few errors", "squares", "heavy tails", "no end of a tail", "waves"]
)
def test_a_stationary_stream_gives_no_alarm(kind):
    draw, rows = np.random.default_rng(0), 150 * BLOCK
    losses = {
        "errors": lambda: draw.random(rows) < 0.3,
        "few errors": lambda: draw.random(rows) < 1e-3,
        "squares": lambda: draw.standard_normal(rows) ** 2,
        "heavy tails": lambda: draw.lognormal(0, 2, rows),
        "no end of a tail": lambda: draw.standard_t(3, rows) ** 2,
        "waves": lambda: 1 + np.sin(np.arange(rows) / 300) + draw.random(rows),
    }[kind]()
    assert told(losses.astype(float).tolist()) == []


def test_single_blocks_and_what_is_not_finite_count_for_nothing():
    quiet, loud = [0.2] * BLOCK, [50.0] * BLOCK
    assert told((quiet * 10 + loud * (HELD - 1)) * 5) == []
    assert told([0.2] * 10 * BLOCK + [float("nan"), float("inf")] * 10 * BLOCK) == []
    # A level of less than HELD blocks was never held.
    assert told([0.6] * 9 * BLOCK + [0.2] * (HELD - 1) * BLOCK + [0.6] * 9 * BLOCK) == []


def test_errors_are_seen_relative_to_a_baseline():
    watch = LossWatch(0.05)
    # The numbers grow a hundredfold, and with them every error: nothing was lost.
    found = [watch.add(0.5 * scale, scale) for scale in np.linspace(1, 100, 30 * BLOCK)]
    assert found == [None] * len(found)
    assert [watch.add(0.0, 0.0) for _ in range(9 * BLOCK)] == [None] * 9 * BLOCK


def test_a_restored_watch_goes_on():
    losses, cut = errors((0.1, 10), (0.4, 10)), 7 * BLOCK + 123
    watch, again = LossWatch(), LossWatch()
    assert told(losses[:cut], watch) == []
    again.restore(json.loads(json.dumps(watch.to_json())))
    assert [i + cut for i in told(losses[cut:], again)] == told(losses) != []


@pytest.mark.full
def test_a_stream_that_is_run_warns_where_it_is_run(monkeypatch):
    monkeypatch.setattr(forgetting, "BLOCK", 4)
    monkeypatch.setattr(learner, "BLOCK", 4)
    cell, key = ft.LRU.factory(state_size=2), jax.random.key(0)
    network = ft.Network(1, 1, model_size=2, depth=1, cell=cell, key=key)
    options = {"optimizer": optax.sgd(0.0), "loss": ft.losses.squared_error}
    one = ft.Learner(network, rule=ft.ONLINE, **options)
    labels = [10.0 if i >= 40 else 1.0 for i in range(80)]
    rows = [(jnp.ones((2, 1)), jnp.full((2, 1), label)) for label in labels]
    with pytest.warns(ft.Forgetting, match="lost what it had learned") as caught:
        assert len([*one.run(one.init(), rows)]) == 80
    assert caught[0].filename == __file__
