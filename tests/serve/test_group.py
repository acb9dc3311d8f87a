"""A group of processes on a broker: whatever happens to them, they answer as one process does."""

import re
import signal
import urllib.request

import pytest
from groups import IDS, LEAVES, RETURNS, Judge, Worker, broker, make, rows, send, until, workers

from foretrace.stream.runs.report import records_in


@pytest.mark.program
@pytest.mark.slow
def test_processes_that_are_killed_or_stopped_answer_as_one(tmp_path):
    sent = rows(900, 8)
    asked = sum("y" not in value for _, value in sent)
    names = killed, moved, one = [tmp_path / name for name in ("killed", "moved", "one")]
    with broker() as address:
        make(address, 8, "rows", *(name.name for name in names))
        judge, step = Judge(address, "killed"), len(sent) // 4
        with workers(address, killed, *IDS, count=3, properties=RETURNS) as many:
            for begin in range(0, 3 * step, step):  # each is killed in turn
                send(address, sent[begin : begin + step])
                judge.wait(judge.read() + step // 4, *many)
                many.pop(0).kill()
                many.append(Worker(address, killed, *IDS, properties=RETURNS))
            send(address, sent[3 * step :])
            judge.wait(asked, *many)
            assert [worker.end() for worker in many] == [130] * 3
        with workers(address, moved, *IDS, count=2, properties=LEAVES) as (first, second):
            other = Judge(address, "moved").wait(1, first, second)
            first.signal(signal.SIGSTOP)
            other.wait(asked, second)  # it gets the partitions of the first
            first.signal(signal.SIGCONT)
            until(lambda: "are lost" in first.said)
            assert [worker.end() for worker in (first, second)] == [130] * 2
        with workers(address, one, *IDS) as (worker,):
            alone = Judge(address, "one").wait(asked, worker)
            assert worker.end() == 130
        judge.read(), other.read()
    # How many answers come twice depends on the moment of a kill.
    assert judge.found == other.found == alone.found and not alone.repeated


@pytest.mark.program
def test_a_process_counts_what_is_no_row_and_shows_its_numbers(tmp_path):
    sent, run = rows(60, 2), tmp_path / "run"
    bad = [(0, b"no JSON"), (0, b" " * 2**21), (1, {"who": "m1", "z": 1})]
    with broker() as address:
        make(address, 2, "rows", "run")
        send(address, bad + sent)
        with workers(address, run, *IDS, "--metrics-port", 0) as (one,):
            Judge(address, "run").wait(60, one)
            url = re.search(r"metrics at (\S+)", one.said)[1]
            until(lambda: 'foretrace_bad_rows{partition="0"} 2.0' in numbers(url))
            assert 'foretrace_rows{partition="1"} 60.0' in numbers(url)
            assert 'foretrace_lag{partition="1"} 0.0' in numbers(url)
            assert one.end() == 130 and one.said.count("is skipped") == 2
    _, (line,) = records_in(run)
    assert line["parts"] == 2 and line["counts"] == {"bad rows": 3} and line["step"] == 120


def numbers(url):
    with urllib.request.urlopen(url, timeout=10) as page:
        return page.read().decode()
