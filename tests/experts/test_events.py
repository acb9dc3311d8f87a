"""Unusual rows are remembered until newer ones, and cost nothing if absent or too many."""

import jax
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import MAX_EVENTS, Shape
from foretrace.stream.model.events import (
    event_features,
    has_events,
    is_unusual,
    new_events,
    remember,
)

SHAPE = Shape(2, (0, 1), 2, classes=True, previous=False)
STEP = jax.jit(lambda events, row: remember(events, row, is_unusual(row)))


def followed(rows):
    """The memory behind the rows."""
    events = new_events(SHAPE)
    for row in rows:
        events = STEP(events, np.asarray(row, float))
    return events


@given(
    st.lists(
        st.sampled_from([0.0, 1.0, -TUNED.far_out, TUNED.far_out + 0.5, -TUNED.far_out - 1]),
        min_size=1,
        max_size=30,
    )
)
def test_the_last_unusual_rows_and_their_ages(values):
    events = followed([[0.5, value] for value in values])
    unusual = [
        (len(values) - 1 - i, value) for i, value in enumerate(values) if abs(value) > TUNED.far_out
    ][::-1]
    for place in range(MAX_EVENTS):
        if place < len(unusual):
            assert events.ages[place] == unusual[place][0]
            np.testing.assert_array_equal(events.rows[place], [0.5, unusual[place][1]])
        else:
            assert events.ages[place] == -1
    np.testing.assert_allclose(events.share, len(unusual) / len(values), rtol=1e-6)


def test_features_are_zero_before_the_first_unusual_row_and_where_these_are_frequent():
    rare, frequent = [[9.0, 0.0]] + [[0.0, 0.0]] * 20, [[9.0, 0.0]] + [[0.0, 0.0]] * 5
    assert 1 / len(frequent) > TUNED.rare > 1 / len(rare)
    assert has_events(followed(rare)) and np.any(event_features(followed(rare)))
    for rows in (frequent, [[0.0, 0.0]] * 20):
        assert not has_events(followed(rows))
        assert not np.any(event_features(followed(rows)))
