"""Scripts and records that pages name, other libraries beside us, and the rolling window."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft

ROOT = Path(__file__).parents[2]


def test_every_script_that_a_page_or_a_record_names_is_there():
    history = {ROOT / "CHANGELOG.md", ROOT / "dev" / "LOG.md"}
    pages = {
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "benchmarks").rglob("*.md"),
    } - history
    for path in sorted(pages | set((ROOT / "benchmarks" / "records").glob("*.jsonl"))):
        text = path.read_text()
        for name in set(re.findall(r"python -m (benchmarks[.\w]+)", text)):
            place = ROOT / name.replace(".", "/")
            there = place.with_suffix(".py").exists() or (place / "__main__.py").exists()
            assert there, f"{path.name} names {name}"
        for name in (
            set(re.findall(r"\bbenchmarks/[\w/]+\.(?:py|jsonl|json|md)\b", text))
            if path in pages
            else ()
        ):
            assert (ROOT / name).exists(), f"{path.name} names {name}"


def test_a_finished_cell_is_not_measured_again_and_a_torn_line_is_no_cell(
    benchmark, tmp_path, capsys
):
    ledger = benchmark("ledger")
    path, measured = tmp_path / "records" / "x.jsonl", []
    ledger.each(
        path, [{"a": 1}, {"a": 2}], lambda cell: measured.append(cell) or {"score": cell["a"]}
    )
    with open(path, "a") as file:
        file.write('{"cell": {"a": 3}, "fou')
    ledger.each(
        path, [{"a": 2}, {"a": 3}], lambda cell: measured.append(cell) or {"score": cell["a"]}
    )
    assert measured == [{"a": 1}, {"a": 2}, {"a": 3}]
    assert [record["found"]["score"] for record in ledger.read(path)] == [1, 2, 3]
    assert "there already: a=2" in capsys.readouterr().err


def test_the_arguments_of_cells_are_the_options_of_a_benchmark(benchmark, tmp_path, monkeypatch):
    ledger = benchmark("ledger")

    def cells(kinds=("a", "b"), rows=3, whole=False):
        """Return the cells."""
        return ledger.grid(kind=kinds, rows=rows, whole=whole)

    for words in (["--rows", "5", "--only", "b"], ["--whole", "--kinds", "c"], ["--only", "7"]):
        monkeypatch.setattr("sys.argv", ["x", *words, "--records", str(tmp_path)])
        ledger.run("", lambda cell: cell["kind"], cells, lambda cell: {"double": 2 * cell["rows"]})
    assert {path.name for path in tmp_path.iterdir()} == {"b.jsonl", "c.jsonl"}
    (b,), (c,) = (ledger.read(tmp_path / f"{kind}.jsonl") for kind in "bc")
    assert b["cell"] == {"kind": "b", "rows": 5, "whole": False} and b["found"] == {"double": 10}
    assert c["cell"] == {"kind": "c", "rows": 3, "whole": True}
    assert {"commit", "packages", "load"} <= b["surroundings"].keys()


def test_peers_are_scored_before_they_learn_and_get_labels_late(benchmark):
    peers = benchmark("streams.peers")
    log = []

    class Model:
        def predict_one(self, x):
            log.append(("predict", x["n"], x.get("n -1"), x.get("last")))
            return 1.0

        def learn_one(self, x, y):
            log.append(("learn", x["n"], y))

        def size(self):
            return 1024

    rows = [({"n": float(i)}, None if i == 1 else float(i)) for i in range(4)]
    data = peers.Data(rows, classes=False, count=4, lags=1, delay=1, previous=True)
    found = peers.progressive(Model(), data)
    assert log == [
        ("predict", 0.0, None, None),
        ("learn", 0.0, 0.0),
        ("predict", 2.0, 1.0, 0.0),
        ("predict", 3.0, 2.0, 0.0),
        ("learn", 2.0, 2.0),
    ]
    assert (
        found["mae"] == pytest.approx((1 + 1 + 2) / 3)
        and found["scored"] == 3
        and found["state_kib"] == 1
    )


@pytest.mark.program
@pytest.mark.parametrize(("reach", "chunk"), [(6, 2), (8, 4), (2, 4)])
@pytest.mark.exact
def test_the_rolling_window_is_backpropagation_through_its_last_steps(benchmark, reach, chunk):
    """Fixed parameters: the newest label's gradient through `reach` steps from the state before."""
    rolling = benchmark("rolling")
    cell = ft.LRU.factory(state_size=3)
    network = ft.Network(2, 3, model_size=4, depth=2, cell=cell, key=jax.random.key(0))
    loss, steps = ft.losses.softmax_cross_entropy, 12
    xs = jax.random.normal(jax.random.key(1), (steps, 2))
    ys, mask = jnp.zeros(chunk, jnp.int32), jnp.arange(chunk) == chunk - 1
    learner = rolling.Rolling(
        network, optimizer=optax.sgd(0.0), loss=loss, reach=reach, chunk=chunk
    )
    state = learner.init()
    for start in range(0, steps, chunk):
        state, info = learner.step(state, xs[start : start + chunk], ys, mask=mask)
    with_zeros = jnp.concatenate([jnp.zeros((max(reach - chunk, 0), 2)), xs])
    plain = ft.Learner(network, rule=ft.BPTT, optimizer=optax.sgd(0.0), loss=loss, warn=False)
    _, before = plain.predict(plain.init(), with_zeros[:-reach])
    last = jnp.arange(reach) == reach - 1
    _, expected = plain.step(before, xs[-reach:], jnp.zeros(reach, jnp.int32), mask=last)
    np.testing.assert_allclose(info.loss, expected.loss, rtol=1e-10)
    np.testing.assert_allclose(info.gradient_norm, expected.gradient_norm, rtol=1e-10)
    outputs, _ = plain.predict(plain.init(), with_zeros)
    np.testing.assert_allclose(info.outputs, outputs[-chunk:], rtol=1e-10)


def test_a_scaled_peer_gets_indicators_as_they_are(benchmark):
    seen = []

    class Model:
        def predict_one(self, x):
            seen.append(x)

        def learn_one(self, x, y):
            seen.append(x)

    model = benchmark("streams.peers").Scaled(Model())
    for value in (1.0, 3.0):
        model.learn_one({"n": value, "last is a": 1.0}, 0)
    model.predict_one({"n": 3.0, "last is a": 1.0})
    assert seen[-1] == {"n": 1.0, "last is a": 1.0}


@pytest.mark.program
@pytest.mark.exact
def test_plain_jax_computes_the_loss_and_the_gradient_of_our_network(benchmark):
    peer_steps = benchmark("engine.peer_steps")
    made = peer_steps.network(peer_steps.SHAPE, peer_steps.GRU().factory())
    xs, ys = peer_steps.data(peer_steps.SHAPE, 3, 5)
    value, grads, _ = ft.gradient(
        made, None, xs, ys, rule=ft.BPTT, loss=ft.losses.softmax_cross_entropy
    )
    with jax.numpy_rank_promotion("allow"):
        theirs, their_grads = jax.value_and_grad(peer_steps.loss)(
            peer_steps.parameters_of(made), xs, ys
        )
    np.testing.assert_allclose(value, theirs, rtol=1e-10)
    for ours, plain in zip(
        jax.tree.leaves(peer_steps.parameters_of(grads)), jax.tree.leaves(their_grads), strict=True
    ):
        np.testing.assert_allclose(ours, plain, rtol=1e-8, atol=1e-10)
