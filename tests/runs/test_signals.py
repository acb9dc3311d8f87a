"""Signals that are put off until work is whole, and requests to stop."""

import signal

import pytest

from foretrace._runs.files import LockedError
from foretrace._runs.many import many
from foretrace._runs.signals import Stop, Uninterrupted


@pytest.fixture(autouse=True)
def _ctrl_c_is_an_error():
    """Python's own handler: a shell's background process ignores Ctrl-C from its start."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_waits_for_the_end_of_the_block():
    before, done = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), Uninterrupted():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        done.append("all of it")
    assert done and signal.getsignal(signal.SIGINT) is before


def test_a_stop_between_two_runs_is_that_of_the_next_one():
    with Stop() as loop:
        with Stop() as first:
            signal.raise_signal(signal.SIGINT)
        assert first.asked and loop.asked  # a run passes its request on
    with Stop() as loop:
        signal.raise_signal(signal.SIGINT)
        with Stop() as late:
            assert late.asked
            # The second signal ends the program.
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with Stop() as fresh:
        assert not fresh.asked


def test_many_attempts_each_run_until_it_has_its_result():
    locked, done = {2: 1, 3: 2}, []

    def attempt(job):
        if locked.get(job):
            locked[job] -= 1
            raise LockedError("another process has it")
        done.append(job)

    with Stop() as stop:
        many(lambda: [job for job in (1, 2, 3) if job not in done], attempt, stop)
        assert done == [1, 2, 3]
        done.clear()
        many(lambda: [1, 2], lambda job: (done.append(job), signal.raise_signal(2)), stop)
    assert done == [1]
