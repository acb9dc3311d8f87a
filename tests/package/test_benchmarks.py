"""The benchmarks: their runner, and the rolling window beside our rules."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft


def test_a_finished_cell_is_not_measured_again_and_a_torn_line_is_no_cell(
    benchmark, tmp_path, capsys
):
    ledger = benchmark("ledger")
    path, measured = tmp_path / "records" / "x.jsonl", []

    def measure(*cells):
        cells = [{"a": a} for a in cells]
        ledger.each(path, cells, lambda cell: measured.append(cell["a"]) or {"score": cell["a"]})

    measure(1, 2)
    with open(path, "a") as file:
        file.write('{"cell": {"a": 3}, "fou')
    measure(2, 3)
    assert measured == [record["found"]["score"] for record in ledger.read(path)] == [1, 2, 3]
    assert "there already: a=2" in capsys.readouterr().err


@pytest.mark.program
@pytest.mark.exact
def test_the_rolling_window_is_backpropagation_through_its_last_steps(benchmark):
    """Fixed parameters: the newest label's gradient through six steps from the state before."""
    cell, reach, chunk, steps = ft.LRU.factory(state_size=3), 6, 2, 12
    network = ft.Network(2, 3, model_size=4, depth=2, cell=cell, key=jax.random.key(0))
    options = {"optimizer": optax.sgd(0.0), "loss": ft.losses.softmax_cross_entropy}
    xs, ys = jax.random.normal(jax.random.key(1), (steps, 2)), jnp.zeros(steps, int)
    rolling = benchmark("rolling").Rolling(network, reach=reach, chunk=chunk, **options)
    state, newest = rolling.init(), jnp.arange(reach) == reach - 1
    for at in range(0, steps, chunk):
        x = xs[at : at + chunk]
        state, info = rolling.step(state, x, ys[:chunk], mask=newest[-chunk:])
    xs = jnp.concatenate([jnp.zeros((reach - chunk, 2)), xs])  # where nothing has been
    plain = ft.Learner(network, rule=ft.BPTT, warn=False, **options)
    _, before = plain.predict(plain.init(), xs[:-reach])
    _, expected = plain.step(before, xs[-reach:], ys[:reach], mask=newest)
    outputs, _ = plain.predict(plain.init(), xs)
    close = {"rtol": 1e-10}
    np.testing.assert_allclose(info.loss, expected.loss, **close)
    np.testing.assert_allclose(info.gradient_norm, expected.gradient_norm, **close)
    np.testing.assert_allclose(info.outputs, outputs[-chunk:], **close)
