"""The benchmarks: their runner, other libraries beside us, the rolling window, the suite's page."""

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


class Peer:
    """A model of another library, which notes what it gets."""

    def __init__(self):
        self.log = []

    def predict_one(self, x):
        self.log.append(x)
        return 1.0

    def learn_one(self, x, y):
        self.log.append((x, y))

    def size(self):
        return 1024


def test_peers_are_scored_before_they_learn_and_get_labels_late(benchmark):
    peers, model = benchmark("streams.peers"), Peer()
    rows = [({"n": float(i)}, None if i == 1 else float(i)) for i in range(4)]
    data = peers.Data(rows, classes=False, count=4, lags=1, delay=1, previous=True)
    found = peers.progressive(model, data)
    second, third = ({"n": n, "n -1": n - 1, "last": 0.0} for n in (2.0, 3.0))
    first = {"n": 0.0}
    assert model.log == [first, (first, 0.0), second, third, (second, 2.0)]
    assert found["mae"] == pytest.approx((1 + 1 + 2) / 3)
    assert (found["scored"], found["state_kib"]) == (3, 1)


def test_a_scaled_peer_gets_indicators_as_they_are(benchmark):
    peer = Peer()
    model = benchmark("streams.peers").Scaled(peer)
    for value in (1.0, 3.0):
        model.learn_one({"n": value, "last is a": 1.0}, 0)
    model.predict_one({"n": 3.0, "last is a": 1.0})
    assert peer.log[-1] == {"n": 1.0, "last is a": 1.0}


@pytest.mark.program
@pytest.mark.parametrize(("reach", "chunk"), [(6, 2), (8, 4), (2, 4)])
@pytest.mark.parametrize("streams", [None, 2])
@pytest.mark.exact
def test_the_rolling_window_is_backpropagation_through_its_last_steps(
    benchmark, reach, chunk, streams
):
    """Fixed parameters: the newest label's gradient through `reach` steps from the state before.

    One of several streams begins an episode, within the window or at its border.
    """
    cell = ft.LRU.factory(state_size=3)
    network = ft.Network(2, 3, model_size=4, depth=2, cell=cell, key=jax.random.key(0))
    options = {"optimizer": optax.sgd(0.0), "loss": ft.losses.softmax_cross_entropy}
    options["batch_size"] = streams
    front, steps, empty = (streams or 1,), 12, max(reach - chunk, 0)
    xs = jax.random.normal(jax.random.key(1), (*front, steps, 2))
    starts = jnp.zeros((*front, steps), bool).at[1:, 8].set(True)

    def of_steps(length):
        """Return labels and weights that count the newest step."""
        data = (jnp.zeros((*front, length), int), jnp.arange(length)[None] == length - 1)
        return [jnp.broadcast_to(leaf, (*front, length)) for leaf in data]

    def given(*leaves):
        return [leaf if streams else leaf[0] for leaf in leaves]

    rolling = benchmark("rolling").Rolling(network, reach=reach, chunk=chunk, **options)
    state = rolling.init()
    for at in range(0, steps, chunk):
        part = slice(at, at + chunk)
        x, y, mask, reset = given(xs[:, part], *of_steps(chunk), starts[:, part])
        state, info = rolling.step(state, x, y, mask=mask, reset=reset)
    # Zeros stand where nothing has been.
    xs, starts = (
        jnp.concatenate([jnp.zeros((*front, empty, *leaf.shape[2:]), leaf.dtype), leaf], 1)
        for leaf in (xs, starts)
    )
    plain = ft.Learner(network, rule=ft.BPTT, warn=False, **options)
    x, reset = given(xs[:, :-reach], starts[:, :-reach])
    _, before = plain.predict(plain.init(), x, reset=reset)
    x, y, mask, reset = given(xs[:, -reach:], *of_steps(reach), starts[:, -reach:])
    _, expected = plain.step(before, x, y, mask=mask, reset=reset)
    x, reset = given(xs, starts)
    outputs, _ = plain.predict(plain.init(), x, reset=reset)
    close = {"rtol": 1e-10}
    np.testing.assert_allclose(info.loss, expected.loss, **close)
    np.testing.assert_allclose(info.gradient_norm, expected.gradient_norm, **close)
    np.testing.assert_allclose(info.outputs, outputs[..., -chunk:, :], **close)


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


def test_a_table_has_the_mean_of_its_seeds_and_the_best_score_is_bold(benchmark):
    page = benchmark("pages.suite")
    assert {page.scores(task, []) for task in page.SCORES} == {"*Not measured yet.*"}

    def record(rule, seed, loss, time):
        found = {"loss": loss, "accuracy": 0.5, "cpu_us_per_step": time}
        found |= {"memory_kib": 3.0, "operations": 2000.0}
        return {"cell": {"task": "copy", "rule": rule, "seed": seed, "batches": 2}, "found": found}

    records = [(page.ONLINE, 0, 1.0, 3.0), (page.ONLINE, 1, 2.0, 5.0), ("spatial", 0, 3.0, 2.0)]
    spatial, online = page.scores("copy", [record(*one) for one in records]).split("\n")[2:]
    assert spatial.startswith("| spatial | 1 | 3.000 | **50.0 %** | 3 | 2 | 0.5 |")
    assert online.startswith(f"| {page.ONLINE} | 2 | **1.500** (1.000, 2.000) |")
    assert online.endswith("| 3 | 2 | 1.0 |")


@pytest.mark.full
@pytest.mark.usefixtures("default_promotion")
def test_nothing_moves_without_a_label(benchmark):
    optimizer = benchmark("credit.suite_rules").with_labels_only(ft.adamw(0.1))
    network = ft.Network(
        1, 1, model_size=2, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(0)
    )
    ones = jax.tree.map(jnp.ones_like, network)
    _, state = optimizer.update(ones, optimizer.init(network), network)
    updates, after = optimizer.update(jax.tree.map(jnp.zeros_like, network), state, network)
    assert not any(leaf.any() for leaf in jax.tree.leaves(updates))
    jax.tree.map(np.testing.assert_array_equal, after, state)
