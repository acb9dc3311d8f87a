"""Calibrated probabilities: sums to one, the same without a label, never much worse than base rates or the network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import fast

from foretrace.stream._calibration import SHARE, SHARPNESS, calibrated, new_calibration, with_labels
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._run import follow

CLASSES = 5
predict, learn = jax.jit(calibrated), jax.jit(with_labels)


def losses(outputs, labels):
    """Return the log losses of calibrated probabilities, and those of the base rates and of the network by hand."""
    classes = outputs.shape[1]
    calibration, counts, found = new_calibration(classes), np.zeros(classes), []
    for output, label in zip(outputs, labels, strict=True):
        logs = np.asarray(predict(calibration, output[None]))[0]
        assert np.isfinite(logs).all() and np.exp(logs).sum() == pytest.approx(1)
        seen = counts > 0 if counts.any() else np.ones(classes, bool)
        num_seen = (counts > 0).sum()
        escape = 0.0 if num_seen == classes else num_seen / max(counts.sum() + num_seen, 1)
        rates = counts + 0.5 * (counts > 0) if counts.any() else np.ones(classes)
        network = np.where(seen, np.exp(output - output.max()), 0.0)
        plain = [(1 - escape) * p / p.sum() + escape / classes for p in (rates, network)]
        found.append([-logs[label], *(-np.log(max(p[label], 1e-12)) for p in plain)])
        calibration = learn(calibration, output[None], np.array([label]), np.array([True]))
        counts[label] += 1
    return np.array(found)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.3, 1.0, 30.0]), st.floats(0, 1))
def test_it_is_never_much_worse_than_the_base_rates_or_the_network(seed, size, share_right):
    draw = np.random.default_rng(seed)
    labels = draw.choice(CLASSES, 120, p=draw.dirichlet(np.full(CLASSES, 0.5)))
    outputs = draw.normal(size=(120, CLASSES)) * size
    right = draw.random(120) < share_right
    outputs[right, labels[right]] += 2 * size
    ours, *others = losses(outputs, labels).sum(axis=0)
    assert ours <= min(others) + np.log(1 + len(SHARPNESS)) - 120 * np.log(1 - SHARE) + 1e-6


def test_what_is_too_sure_is_softened():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 1000)
    # Right in four of five rows, and says 0.9997.
    said = np.where(draw.random(1000) < 0.8, labels, 1 - labels)
    outputs = np.zeros((1000, CLASSES))
    outputs[np.arange(1000), said] = 8.0
    ours, rates, network = losses(outputs, labels)[200:].mean(axis=0)
    assert network > 1.3 and rates > 0.68 and ours < 0.56, "the best possible is 0.50"


def test_nothing_changes_without_a_label():
    calibration = learn(new_calibration(3), jnp.ones((2, 3)), np.array([0, 2]), np.array([True, True]))
    same = learn(calibration, jnp.full((2, 3), 7.0), np.array([1, 1]), np.array([False, False]))
    for a, b in zip(jax.tree.leaves(calibration), jax.tree.leaves(same), strict=True):
        np.testing.assert_array_equal(a, b)
    assert np.isfinite(np.asarray(predict(calibration, jnp.array([[jnp.nan, jnp.inf, 0.0]])))).all()


@pytest.mark.usefixtures("standard_promotion")
@pytest.mark.parametrize("options", fast([{}, {"member": "who"}]))
def test_a_network_alone_begins_at_the_base_rates(tmp_path, options):
    draw = np.random.default_rng(0)
    rows = [f"{draw.normal():.3f},{'ab'[i % 2]},{'up' if draw.random() < 0.9 else 'down'}" for i in range(150)]
    (tmp_path / "a.csv").write_text("\n".join(["x,who,y", *rows]) + "\n")
    # At this rate the network is sure of what it has just seen.
    model = ModelConfig("tiny", depth=1, model_size=4, state_size=3, learning_rate=0.1)
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", model=model, **options)
    found = 150 * follow(config, tmp_path / "run", show_progress=False).scores["log_loss"]
    labels = np.array([row.endswith("up") for row in rows]).astype(int)
    rates = losses(np.zeros((150, 16)), labels)[:, 1].sum()
    assert found <= rates + np.log(1 + len(SHARPNESS)) - 150 * np.log(1 - SHARE) + 1e-3
