"""Common parts of the loops of all long runs."""

import time

import pytest

from foretrace._runs.loop import (
    IN_FLIGHT,
    REFUSED_IN_A_ROW,
    Clock,
    DivergenceError,
    Pending,
    Schedule,
    check_refused,
)


@pytest.mark.parametrize("last", [7, 8])
def test_a_loop_that_stops_where_something_is_due_misses_nothing(last):
    schedule, step, stops = Schedule(last), 0, []
    while step < last:
        step += schedule.steps_until_due(step, 4)
        stops.append(step)
    assert stops == [s for s in range(1, last + 1) if schedule.is_due(s, every=4)]
    assert not schedule.is_due(last, every=None)


def test_results_are_read_in_order_and_late():
    pending, read = Pending(), []
    for step in range(5):
        pending.add(step, f"result {step}")
        read += [found for found, _ in pending.take(all=False)]
        assert len(read) == max(0, step + 1 - IN_FLIGHT)
    assert read + [found for found, _ in pending.take(all=True)] == [0, 1, 2, 3, 4]
    assert list(pending.take(all=True)) == []


def test_only_many_refusals_in_a_row_end_a_run():
    check_refused(REFUSED_IN_A_ROW - 1, "step 8", "try less")
    with pytest.raises(DivergenceError, match=r"20 steps in a row, up to step 9; try less"):
        check_refused(REFUSED_IN_A_ROW, "step 9", "try less")


def test_a_clock_goes_on(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Clock(before=5.0)
    now[0] = 103.0
    assert clock.seconds == 8.0
