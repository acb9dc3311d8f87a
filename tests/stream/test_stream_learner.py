"""Predict now, learn when the label is there: the ring of waiting steps against the definition."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast

from foretrace._experts.recurrent import Recurrent, read_measures
from foretrace._experts.shape import Shape
from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder, EncodingError
from foretrace._rows.number_target import NumberTarget
from foretrace._rows.schema import Column
from foretrace._rows.scores import Scores, score_class, score_numbers
from foretrace._rows.target import ClassContext, ClassTarget
from foretrace.stream._model import build_learner, resolve
from foretrace.stream._model_config import ModelConfig

pytestmark = [pytest.mark.exact, pytest.mark.usefixtures("standard_promotion")]
ONE = np.zeros(1, np.int32), np.zeros(1, bool)
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
    return resolve(ModelConfig(**network), Shape(input_size, (), output_size, classes, **shape))


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
    assert read_measures(step.measures).accepted == 0 and state.learner.skipped == 1
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
        ({}, ("uoro(sketches=2)", None), ("uoro(sketches=2)", True)),
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


def test_a_delay_beyond_memory_is_refused():
    with pytest.raises(
        ValueError, match=r"delay=10000000: .* at most 1024 MiB .* the delay can be \d+ rows"
    ):
        Alone(make_model(3, 1, classes=False, delay=10_000_000, **TINY))
    with pytest.raises(ValueError, match="chunk=0"):
        Alone(make_model(3, 1, classes=False, chunk=0, **TINY))


def make_labels(target, **options):
    return DelayedLabels(Encoder([Column("x", "numeric")]), target, **options)


@pytest.mark.parametrize("delay", [0, 1, 3])
def test_late_labels_reach_their_rows(delay):
    late = make_labels(ClassTarget(10), delay=delay)
    for i in range(8):
        known = late.target.context()
        late.push({"x": i}, str(i))
        # The labels of the last rows are not known yet.
        assert known.num_classes == max(i - delay, 0)
    due = late.pop_resolved(100)
    assert [d.targets for d in due] == [[i] for i in range(8 - delay)]
    assert [d.context.last for d in due] == [
        i - 1 - delay if i > delay else None for i in range(8 - delay)
    ]


@pytest.mark.parametrize("delay", [0, 2])
def test_forecasts_get_the_numbers_behind_their_row(delay):
    late = make_labels(NumberTarget(3), horizon=3, delay=delay)
    for i in range(10):
        late.push({"x": 0}, i)
    due = late.pop_resolved(100)
    assert [d.targets for d in due] == [[i + 1, i + 2, i + 3] for i in range(7 - delay)]
    # What is known when row i is predicted is its own target, or that of `delay` rows before.
    assert [d.context.last for d in due] == [
        i - delay if i >= delay else None for i in range(7 - delay)
    ]


@pytest.mark.parametrize("horizon", [0, 2])
@pytest.mark.parametrize("delay", [0, 1, 3])
def test_who_only_answers_sees_the_same_last_targets(delay, horizon):
    """None before its time: the target of a row is known `delay` rows behind it."""
    rows = 2 if horizon else 9  # classes have to be known

    def make():
        target = NumberTarget(horizon) if horizon else ClassTarget(9)
        one = make_labels(target, horizon=horizon, delay=delay)
        for i in range(rows):
            one.push({"x": i}, i % 5)
        return one

    learns, answers = make(), make()
    for i in range(rows, 20):
        value = i % 5 if i % 4 else None
        seen, asked = learns.push({"x": i}, value), answers.advance({"x": i}, value)
        assert learns.last == answers.last
        if not horizon:  # numbers are told in a scale, which goes on for who learns
            np.testing.assert_array_equal(asked[2:], seen[2:])
    assert learns.last is not None


def test_late_labels_go_on_from_their_state():
    def make():
        return make_labels(NumberTarget(2), horizon=2, delay=3)

    one, two = make(), make()
    values = [float(i) if i % 5 else None for i in range(40)]
    for i in range(20):
        one.push({"x": i}, values[i])
    one.pop_resolved(4)
    two.restore(json.loads(json.dumps(one.to_json())))
    for i in range(20, 40):
        np.testing.assert_array_equal(one.push({"x": i}, values[i]), two.push({"x": i}, values[i]))
    assert one.pop_resolved(100) == two.pop_resolved(100) and one.to_json() == two.to_json()


def test_classes_grow_up_to_their_capacity():
    target = ClassTarget(2)
    assert [target.learn(y) for y in ("a", "b", "c", "", "b", "b")] == [0, 1, -1, None, 1, 1]
    assert target.context() == ClassContext(2, 1, 1) and target.counts == {
        "classes without room": 1,
        "missing targets": 1,
    }
    with pytest.raises(ValueError, match="classes=1"):
        ClassTarget(1)


def test_targets_that_are_no_numbers_are_counted_and_outliers_clipped():
    target = NumberTarget()
    for i in range(60):
        target.learn((-1) ** i)
    assert [target.learn(y) for y in ("NA", "inf", "x", 1e9)] == [None, None, None, 1e9]
    counts = {"missing": 1, "infinite": 1, "outlier": 1}
    assert target.counts == {f"{name} targets": n for name, n in counts.items()} | {
        "targets that are no number": 1
    }
    assert abs(target.moments.mean) < 1


def test_outliers_follow_the_policy():
    clip, mask, stop = (NumberTarget(outliers=policy) for policy in ("clip", "mask", "stop"))
    for i in range(60):
        assert [target.learn((-1) ** i) for target in (clip, mask, stop)] == [(-1) ** i] * 3
    before = mask.moments.to_json(), mask.context()
    assert clip.learn(1e9) == 1e9 and clip.moments.mean > 0 and clip.last == 1e9
    assert mask.learn(1e9) is None and (mask.moments.to_json(), mask.context()) == before
    assert clip.counts == mask.counts == {"outlier targets": 1}
    with pytest.raises(
        EncodingError,
        match=r"the target is '1000000000.0', more than 10 standard .*--outliers clip",
    ):
        stop.learn(1e9)
    assert stop.to_json()[:2] == mask.to_json()[:2] and stop.learn(1) == 1
    clip.observe(1e9), mask.observe(1e9)
    assert (clip.last, mask.last) == (1e9, -1)  # nor is it the last one while a model only answers


def test_scores_by_hand():
    late = make_labels(ClassTarget(3))
    for label in "abbc":
        late.push({"x": 0}, label)
    first, *found = [score_class(due, np.log([0.5, 0.3, 0.2])) for due in late.pop_resolved(4)]
    assert first is None  # nothing is known; then b is new, a is said, c is new
    assert [f["accuracy"] for f in found] == [0, 0, 0]
    assert [f["no_change_accuracy"] for f in found] == [0, 1, 0]
    assert [f["log_loss"] for f in found] == pytest.approx([-np.log(p) for p in (0.3, 0.3, 0.2)])
    numbers = make_labels(NumberTarget())
    for y in (2.0, 4.0, None):
        numbers.push({"x": 0}, y)
    found = [
        score_numbers(due, np.array([m]))
        for due, m in zip(numbers.pop_resolved(3), (1, 3, 1), strict=True)
    ]
    assert (
        found[2] is None
        and found[0]["mae"] == 1
        and found[1]["no_change_mae"] == 2
        and found[1]["mae"] == 1
    )
    scores = Scores()
    for one in found[:2]:
        scores.add(one)
    assert (
        scores.window()["rmse"] == pytest.approx(1)
        and scores.window() == {}
        and scores.total()["mae"] == 1
    )


@pytest.mark.full
def test_the_recurrence_learns_at_its_own_factor_of_the_rate():
    """A factor of 0 keeps the eigenvalues, which a long reach needs: phases turn k-fold."""
    xs, ys = rows(8)
    first = Alone(make_model(3, 4, classes=True, **TINY)).init().learner.network.blocks.cell
    moved = {}
    for factor in (0.0, 0.5):
        state, _ = run(make_model(3, 4, classes=True, recurrent_factor=factor, **TINY), xs, ys)
        cell = state.learner.network.blocks.cell
        moved[factor] = {
            n: float(jnp.abs(getattr(cell, n) - getattr(first, n)).max())
            for n in ("theta_log", "B_re")
        }
    assert moved[0.0]["theta_log"] == 0 < moved[0.5]["theta_log"]
    assert moved[0.0]["B_re"] > 0
