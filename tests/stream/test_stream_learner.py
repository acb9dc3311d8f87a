"""Predict now, learn when the label is there: the ring of waiting steps against the definition."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

from foretrace._experts.recurrent import Recurrent
from foretrace._experts.shape import Shape
from foretrace.stream._model import build_learner, resolve
from foretrace.stream._model_config import ModelConfig

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]
ONE = np.int32(0), np.bool_(False)
"""Slot and start of the one stream: neither is looked at."""

TINY = {"size": "small", "depth": 1, "model_size": 4, "state_size": 3, "learning_rate": 0.05}


def make_model(input_size, output_size, classes, **options):
    """Return options and shape of a model, by default with the paper's rule, all trained.

    Other options belong to the shape or the network.
    """
    names = {field.name for field in dataclasses.fields(Shape)}
    shape = {name: value for name, value in options.items() if name in names}
    network = {name: value for name, value in options.items() if name not in names}
    network = {
        "size": "small",
        "rule": "online",
        "train_encoder": True,
    } | network
    return resolve(
        ModelConfig(**network),
        Shape(input_size, (), output_size, classes, **{"previous": False} | shape),
    )


def rows(count, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 3)), rng.integers(0, 4, count)


class Alone:
    """The network of a model for one stream, its methods compiled."""

    def __init__(self, model):
        config, shape = model
        self.learner = build_learner(config, shape)
        self.network = Recurrent(self.learner, chunk=shape.chunk, delay=shape.delay)
        self.ring, self.init, self.classes = self.network.ring, self.network.init, shape.classes
        self._step, self._advance = jax.jit(self.network.step), jax.jit(self.network.advance)

    def step(self, state, xs, ys, mask):
        ys = np.asarray(ys, np.int32 if self.classes else np.float64)
        return self._step(state, np.asarray(xs), ys, np.asarray(mask, bool), *ONE)

    def advance(self, state, xs):
        return self._advance(state, np.asarray(xs), *ONE)


def run(model, xs, ys, mask=None, learner=None):
    """Feed chunks, with chunk j's labels at chunk j + waits; return last state and outputs."""
    learner = learner or Alone(model)
    state, found, size = learner.init(), [], model[1].chunk
    empty = np.zeros(size) if model[1].classes else np.zeros((size, model[1].outputs))
    for j in range(len(xs) // size):
        labels, counts = empty, np.zeros(size, bool)
        late = slice((j - learner.ring.delay) * size, (j - learner.ring.delay + 1) * size)
        if j >= learner.ring.delay:
            labels, counts = ys[late], np.ones(size, bool) if mask is None else mask[late]
        state, step = learner.step(state, xs[j * size : (j + 1) * size], labels, counts)
        found.append(step)
    return state, found


def by_definition(model, xs, ys):
    """The same with the carries in a list."""
    learner = build_learner(*model)
    state, before, predicted, size = learner.init(), [], [], model[1].chunk
    xs, ys = jnp.asarray(xs), jnp.asarray(ys, jnp.int32)
    waits = -(-model[1].delay // size)
    for j in range(len(xs) // size):
        before.append(state.carry)
        outputs, ahead = learner.predict(state, xs[j * size : (j + 1) * size])
        predicted.append(outputs)
        if j >= waits:
            late = slice((j - waits) * size, (j - waits + 1) * size)
            learned, _ = learner.step(
                state._replace(carry=before[j - waits]), xs[late], ys[late], mask=jnp.ones(size)
            )
            state = learned._replace(carry=ahead.carry)
        else:
            state = ahead
    return state, np.stack(predicted)


def assert_equal(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(getattr(x, "dtype", float), jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(
            np.asarray(x), np.asarray(y), **({"rtol": 1e-9, "atol": 1e-12} | tolerance)
        )


@pytest.mark.parametrize(
    "deep", fast([{}, {"depth": 2, "rule": "online(depth=2)"}]), ids=["", "credit in depth"]
)
@pytest.mark.parametrize(("chunk", "delay"), fast([(1, 3), (1, 0), (4, 6), (1, 1), (4, 0), (4, 3)]))
def test_learning_late_is_learning_on_the_carry_of_then(chunk, delay, deep):
    model = make_model(3, 4, classes=True, chunk=chunk, delay=delay, **TINY | deep)
    xs, ys = rows(24)
    state, found = run(model, xs, ys)
    waits = Alone(model).ring.delay
    reference, predicted = by_definition(model, xs, ys)
    assert waits == {0: 0, 1: 1, 3: 3 if chunk == 1 else 1, 6: 2}[delay]
    assert_equal((state.learner.network, state.learner.carry), (reference.network, reference.carry))
    assert_equal(np.stack([step.outputs for step in found]), predicted)


def test_an_answer_moves_the_memory_on_and_learns_nothing():
    model = make_model(3, 1, classes=False, **TINY)
    state, _ = run(model, rows(5)[0], rows(5)[0][:, :1])
    after, _ = Alone(model).advance(state, rows(1)[0])
    assert not np.allclose(state.learner.carry.h, after.learner.carry.h)
    assert_equal(
        (state.learner.network, state.learner.opt_state),
        (after.learner.network, after.learner.opt_state),
    )


def test_numbers_that_are_not_finite_are_refused():
    model = make_model(3, 1, classes=False, **TINY)
    before, _ = run(model, rows(5)[0], rows(5)[0][:, :1])
    state, step = Alone(model).step(
        before, np.full((1, 3), np.nan), np.ones((1, 1)), np.ones(1, bool)
    )
    assert step.measures[3] == 0 and state.learner.skipped == 1
    assert_equal(
        (before.learner.network, before.learner.carry), (state.learner.network, state.learner.carry)
    )


@pytest.mark.parametrize(
    ("options", "asked", "found"),
    [
        ({}, (None, None), ("hybrid(depth=2)", True)),
        ({}, (None, False), ("hybrid(depth=2)", False)),
        ({}, ("hybrid", None), ("hybrid", False)),
        ({}, ("HYBRID", True), ("hybrid", True)),
        ({}, ("hybrid(depth=1)", None), ("hybrid(depth=1)", False)),
        ({}, ("online(groups=1, depth=2)", None), ("online(depth=2, groups=1)", True)),
        ({"chunk": 4}, (None, None), ("hybrid", True)),
        ({"chunk": 4}, ("hybrid(depth=2)", False), ("hybrid(depth=2)", False)),
        ({"chunk": 4}, ("online", None), ("online", False)),
        ({}, ("spatial", None), ("spatial", False)),
        ({"chunk": 4}, ("bptt", None), ("bptt", True)),
        ({"members": 30}, (None, None), ("hybrid(depth=2)", True)),
        ({"members": 3000}, (None, None), ("hybrid", False)),
        ({"members": 30, "delay": 100}, (None, None), ("hybrid", False)),
        ({"delay": 1000}, (None, None), ("hybrid", False)),
        ({"input_size": 500}, (None, None), ("hybrid", False)),
        ({"depth": 4, "model_size": 128, "state_size": 64}, (None, None), ("hybrid", False)),
        (
            {"depth": 1, "model_size": 16, "state_size": 16, "input_size": 500},
            (None, None),
            ("hybrid(depth=1)", True),
        ),
    ],
)
def test_credit_goes_through_all_layers_where_that_is_affordable_and_a_rule_stands_as_given(
    options, asked, found
):
    rule, train_encoder = asked
    options = {
        "input_size": 10,
        "output_size": 2,
        "classes": True,
        "depth": 2,
        "model_size": 32,
    } | options
    config, _ = make_model(**options, rule=rule, train_encoder=train_encoder)
    assert (config.rule, config.train_encoder) == found


@pytest.mark.full
@pytest.mark.parametrize(
    "deep", fast([{}, {"depth": 2, "rule": "online(depth=2)"}]), ids=["", "credit in depth"]
)
def test_what_a_step_needs_does_not_depend_on_the_delay(deep):
    def temporary(delay):
        model = make_model(3, 4, classes=True, delay=delay, **TINY | deep)
        learner = Alone(model).network
        arguments = np.zeros((1, 3)), np.zeros(1, np.int32), np.ones(1, bool), *ONE
        lowered = jax.jit(learner.step, donate_argnums=0).lower(
            jax.eval_shape(learner.init), *arguments
        )
        return lowered.compile().memory_analysis().temp_size_in_bytes

    assert temporary(1000) < temporary(2) + 2**12  # the ring alone is 500 times as large


def test_a_chunk_has_rows():
    with pytest.raises(ValueError, match="chunk=0"):
        Alone(make_model(3, 1, classes=False, chunk=0, **TINY))
