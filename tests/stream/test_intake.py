"""From rows to steps: an answer is about the row that was asked about."""

import dataclasses
import pickle
from contextlib import nullcontext

import jax
import numpy as np
import pytest
from tiers import fast

from foretrace import stream
from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import NumberTarget
from foretrace._rows.schema import Column
from foretrace._rows.target import ClassTarget
from foretrace.stream._intake import Intake
from foretrace.stream._model import resolve, shape_of
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._saved import copy_state

pytestmark = pytest.mark.usefixtures("standard_promotion")
ROWS = [({"who": who, "x": x}, x) for who, x in (("a", 1.0), ("b", -2.0), ("a", 3.0), ("b", 0.5))]
ASKED = [{"who": "a", "x": 2.0}, {"who": "a", "x": -2.0}, {"who": "a", "x": None}]


def make_intake(members):
    labels = DelayedLabels(Encoder([Column("x", "numeric")]), NumberTarget())
    model = resolve(ModelConfig(size="tiny", rule="hybrid"), shape_of(labels, members=members))
    return Intake(labels, *model, member=None if members is None else "who")


@pytest.mark.parametrize("members", fast([None, 2]))
def test_an_answer_depends_on_the_row_that_was_asked_about(members):
    intake = make_intake(members)
    state = intake.mixture.init()
    for row in ROWS * 4:  # of ten labels on, the network has a say
        state = intake.learn(state, [row]).state
    answers = [intake.predict(state, row) for row in ASKED]
    assert len({float(answer[0]) for answer in answers}) == len(ASKED)
    # Without learning, the next row has the same answer, whatever its own target.
    outputs, *_ = intake.advance(copy_state(state), ASKED[0], 1e6)
    np.testing.assert_allclose(outputs, answers[0], rtol=1e-6)


def test_members_with_a_label_are_counted_through_evictions():
    intake = make_intake(2)
    state, most = intake.mixture.init(), 0
    for i, who in enumerate("aabacbbca"):  # three members share two places
        state = intake.learn(state, [({"who": who, "x": 1.0}, None if i == 0 else float(i))]).state
        count = np.isfinite(np.asarray(state.pasts.labels)[:2, 0]).sum()
        assert float(state.members) == count
        most = max(most, count)
    assert most == 2


def class_intake(target, begun_with=None, *, members=None, delay=0, **model):
    labels = DelayedLabels(Encoder([Column("x", "numeric")]), target, delay=delay)
    config, shape = resolve(ModelConfig(**model), shape_of(labels, members=members))
    shape = dataclasses.replace(shape, begun_with=begun_with)
    return Intake(labels, config, shape, member=None if members is None else "who")


def fed(intake, state, rows):
    """Return the state behind rows of five classes, and the probabilities given to each."""
    found = []
    for i in rows:
        label = i % 2 if i < 12 else (i * i + i // 3) % 5
        step = intake.learn(state, [({"who": "ab"[i % 2], "x": label + i % 3 / 2}, f"c{label}")])
        state = step.state
        output = np.exp(np.asarray(step.mixed.newest[0], float))
        found.append(output[: step.contexts[0].num_classes])
    return state, found


@pytest.mark.parametrize(("members", "delay"), fast([(2, 3), (None, 0)]))
def test_room_for_classes_that_come_late_is_as_if_it_had_always_been_there(members, delay):
    options = {"members": members, "delay": delay, "size": "auto"}
    small = class_intake(ClassTarget(2, grows=True), **options)
    large = class_intake(ClassTarget(8), 2, **options)
    state, found = fed(small, small.mixture.init(), range(60))
    known, expected = fed(large, large.mixture.init(), range(60))
    assert small.shape == large.shape and small.target.output_size == 8
    news = small.pop_news()
    assert len(news) == 2 and "'c2' is one more than the 4 there was room for" in news[1]
    for i, (one, two) in enumerate(zip(found, expected, strict=True)):
        # What is left for classes never seen is shared by as many as there is room for.
        np.testing.assert_allclose(one, two, atol=2e-4, err_msg=str(i))
    states = (jax.tree.leaves(each._replace(rings=None)) for each in (state, known))
    for one, two in zip(*states, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize("experts", fast([["row", "network"], ["network"]]))
def test_a_network_with_more_room_predicts_as_before_and_keeps_its_moments(experts):
    intake = class_intake(ClassTarget(2, grows=True), experts=tuple(experts), size="tiny", delay=2)
    state, row = fed(intake, intake.mixture.init(), range(10))[0], {"who": "a", "x": 0.5}
    before, old = np.exp(intake.predict(state, row))[:2], state.network.learner
    intake = pickle.loads(pickle.dumps(intake))
    intake.target._resize(4)
    state = intake._grown(state)
    new = state.network.learner
    assert intake.shape.outputs == 4 and new.network.output_size == old.network.output_size + 2
    np.testing.assert_allclose(np.exp(intake.predict(state, row))[:2], before, atol=1e-4)
    assert norm(new.opt_state) == pytest.approx(norm(old.opt_state), rel=1e-5) and norm(
        new.opt_state
    )
    fed(intake, state, range(20, 40))
    assert intake.shape.outputs == intake.target.output_size == 8


def norm(tree):
    return sum(float(np.abs(leaf).sum()) for leaf in jax.tree.leaves(tree))


def test_an_estimator_makes_room_for_classes_that_come_late_unless_it_is_given():
    pytest.importorskip("river")
    few = ModelConfig(experts=("baselines", "row"))
    grows, fixed = stream.Classifier(model=few), stream.Classifier(model=few, classes=16)
    for i in range(100):
        for model, warned in ((grows, "room for 32, in a new"), (fixed, "16 there is room for")):
            told = pytest.warns(UserWarning, match=warned) if i == 80 else nullcontext()
            with told:
                model.learn_one({"x": i // 5}, i // 5)
    assert grows.predict_one({"x": 19}) == 19 and len(grows.predict_proba_one({"x": 19})) == 20
    assert len(fixed.predict_proba_one({"x": 19})) == 16
