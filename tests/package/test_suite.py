"""The benchmark suite: its page, every task for two batches, and windows with episodes."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft


def test_a_page_without_records_says_so(benchmark):
    page = benchmark("pages.suite")
    assert {page.scores(task, []) for task in page.SCORES} == {"*Not measured yet.*"}


def test_a_table_has_the_mean_of_its_seeds_and_the_best_score_is_bold(benchmark):
    page = benchmark("pages.suite")

    def record(rule, seed, loss, time):
        found = {
            "loss": loss,
            "accuracy": 0.5,
            "memory_kib": 3.0,
            "operations": 2000.0,
            "cpu_us_per_step": time,
        }
        return {"cell": {"task": "copy", "rule": rule, "seed": seed, "batches": 2}, "found": found}

    records = [
        record(page.ONLINE, 0, 1.0, 3.0),
        record(page.ONLINE, 1, 2.0, 5.0),
        record("spatial", 0, 3.0, 2.0),
    ]
    spatial, online = page.scores("copy", records).split("\n")[2:]
    assert spatial.startswith("| spatial | 1 | 3.000 | **50.0 %** | 3 | 2 | 0.5 |")
    assert online.startswith(
        f"| {page.ONLINE} | 2 | **1.500** (1.000, 2.000) |"
    ) and online.endswith("| 3 | 2 | 1.0 |")


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
    assert all(
        (a == b).all() for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(state), strict=True)
    )


@pytest.mark.full
@pytest.mark.exact
def test_windows_of_streams_side_by_side_are_the_mean_and_an_episode_starts_afresh(benchmark):
    """Fixed parameters; a window across an episode's begin has the episode's gradient alone."""
    rolling = benchmark("rolling").Rolling
    network = ft.Network(
        2, 3, model_size=4, depth=2, cell=ft.LRU.factory(state_size=3), key=jax.random.key(0)
    )
    options = {
        "optimizer": optax.sgd(0.0),
        "loss": ft.losses.softmax_cross_entropy,
        "reach": 6,
        "chunk": 2,
    }
    xs = jax.random.normal(jax.random.key(1), (2, 12, 2))
    ys, mask, starts = (
        jnp.zeros((2, 12), int),
        jnp.ones((2, 12)),
        jnp.zeros((2, 12), bool).at[:, 8].set(True),
    )

    def run(learner, xs, *data):
        state = learner.init()
        for at in range(0, 12, 2):
            y, m, r = (leaf[..., at : at + 2] for leaf in data)
            state, info = learner.step(state, xs[..., at : at + 2, :], y, mask=m, reset=r)
        return state, info

    state, both = run(rolling(network, batch_size=2, **options), xs, ys, mask, starts)
    alone = [run(rolling(network, **options), xs[i], ys[i], mask[i], starts[i]) for i in range(2)]
    np.testing.assert_allclose(both.loss, np.mean([info.loss for _, info in alone]), rtol=1e-10)
    np.testing.assert_allclose(state.learner.carry.h[:, 0], alone[0][0].learner.carry.h, rtol=1e-10)
    newest = jnp.arange(4) >= 2
    _, grads, _ = ft.gradient(
        network, None, xs[0, 8:], ys[0, 8:], mask=newest, rule=ft.BPTT, loss=options["loss"]
    )
    np.testing.assert_allclose(alone[0][1].gradient_norm, optax.tree.norm(grads), rtol=1e-10)
