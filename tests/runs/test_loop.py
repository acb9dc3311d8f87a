"""Common parts of the loops of all long runs."""

import pytest

from foretrace._runs.loop import Schedule


@pytest.mark.parametrize("last", [7, 8])
def test_a_loop_that_stops_where_something_is_due_misses_nothing(last):
    schedule, step, stops = Schedule(last), 0, []
    while step < last:
        step += schedule.steps_until_due(step, 4)
        stops.append(step)
    assert stops == [s for s in range(1, last + 1) if schedule.is_due(s, every=4)]
    assert not schedule.is_due(last, every=None)
