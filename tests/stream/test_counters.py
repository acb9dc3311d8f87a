"""Counters of a stream that never ends: near 2^31 and behind it, learning goes on as ever."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from foretrace._experts.score import OF_NUMBERS, of_row, sums_of
from foretrace._experts.shape import Shape
from foretrace._rows.scores import means
from foretrace.stream._model import build_learner, resolve
from foretrace.stream._model_config import ModelConfig

LAST = 2**31 - 1


def counted(state, count):
    """Return a state whose counters all stand at a number."""

    def put(path, leaf):
        integer = jnp.issubdtype(leaf.dtype, jnp.integer) and leaf.ndim == 0
        return (
            jnp.full_like(leaf, count)
            if integer and "turn" not in jax.tree_util.keystr(path)
            else leaf
        )

    return jax.tree.map_with_path(put, state)


@pytest.mark.full
def test_steps_count_up_to_the_largest_number_and_learning_goes_on():
    config = ModelConfig(
        "tiny",
        depth=1,
        model_size=4,
        state_size=3,
        rule="online",
        learning_rate=0.05,
    )
    model = resolve(config, Shape(3, (), 1, previous=False))
    learner, rng = build_learner(*model), np.random.default_rng(0)
    step = jax.jit(learner.step)
    xs, ys = jnp.asarray(rng.normal(size=(8, 1, 3))), jnp.asarray(rng.normal(size=(8, 1, 1)))

    def run(state):
        for x, y in zip(xs, ys, strict=True):
            state, _ = step(state, x, y)
        # A refused step is counted as well.
        return step(state, jnp.full((1, 3), jnp.nan), ys[0])[0]

    begun = learner.init()
    # From here on Adam's corrections are ones in float64, whatever the count.
    early, late = run(counted(begun, 10**6)), run(counted(begun, LAST - 3))
    assert int(early.step) == 10**6 + len(xs) and int(late.step) == LAST
    counts = optax.tree.get_all_with_path(late.opt_state, "count")
    assert counts and all(int(count) == LAST for _, count in counts)
    for name in ("network", "carry"):
        parts = (jax.tree.leaves(getattr(state, name)) for state in (early, late))
        for one, two in zip(*parts, strict=True):
            np.testing.assert_array_equal(one, two)
    assert int(late.skipped) == LAST - 2


@pytest.mark.exact
def test_scores_stay_exact_after_three_billion_rows():
    rows, names = 3e9, sums_of(OF_NUMBERS, ("expert",))
    before = dict.fromkeys(names, 0.0) | {"rows": rows, "coverage": 0.75 * rows, "mse": 4.0 * rows}

    def add(sums, i):
        row = {"coverage": jnp.where(i % 4 > 0, 1.0, 0.0), "mse": 4.0}
        scores = jnp.stack([jnp.asarray(row.get(name, 0.0)) for name in OF_NUMBERS])
        return sums + of_row(OF_NUMBERS, scores, jnp.zeros(1), jnp.zeros(5)), None

    start = jnp.array([before[name] for name in names])
    sums, _ = jax.lax.scan(add, start, jnp.arange(1000))
    total = dict(zip(names, sums.tolist(), strict=True))
    assert total["rows"] == rows + 1000
    assert means(OF_NUMBERS, total)["coverage"] == pytest.approx(0.75, rel=1e-12)
    assert means(OF_NUMBERS, total)["rmse"] == pytest.approx(2.0, rel=1e-12)
