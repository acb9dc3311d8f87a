"""From rows to steps: an answer is about the row that was asked about."""

import numpy as np
import pytest
from tiers import fast

from foretrace._rows.delayed_labels import DelayedLabels
from foretrace._rows.encode import Encoder
from foretrace._rows.number_target import NumberTarget
from foretrace._rows.schema import Column
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
