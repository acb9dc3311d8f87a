"""Signals that are put off until work is whole."""

import signal
import threading

import pytest

from foretrace._runs.signals import Uninterrupted


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


def test_blocks_may_be_nested_and_a_time_limit_waits_as_well():
    def limit(number, frame):
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, limit)
    done = []
    try:
        with pytest.raises(TimeoutError), Uninterrupted():
            with Uninterrupted():
                signal.raise_signal(signal.SIGALRM)
                done.append("inside")
            done.append("outside")
        assert done == ["inside", "outside"]
        assert signal.getsignal(signal.SIGALRM) is limit
    finally:
        signal.signal(signal.SIGALRM, before)


def test_an_error_comes_out_and_handlers_are_back():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="own"), Uninterrupted():
        raise ValueError("own")
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_are_left_alone():
    seen = []

    def work():
        with Uninterrupted():
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen
