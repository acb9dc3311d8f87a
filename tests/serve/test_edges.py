"""Edges of a service: labels inside rows, live clients, two owners, an empty token."""

import http.client
import json
import os
import subprocess
import sys
from concurrent.futures import Future

import numpy as np
import pytest
from services import (
    COMMAND,
    NEW,
    assert_equals_a_run_on_the_journal,
    events,
    sample,
    serving,
)

import foretrace as ft
from foretrace._runs.directory import Run
from foretrace._runs.files import LockedError
from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.journal import Journal
from foretrace.stream.read.schema import Column
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.streams import Streams
from foretrace.stream.read.target import NumberTarget
from foretrace.stream.serve import service as service_of_runs
from foretrace.stream.serve.desk import Request


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("service") / "run", "--checkpoints", 3) as one:
        yield one


def lines(service, *rows):
    body = "".join(json.dumps({"who": "m0"} | row) + "\n" for row in rows)
    return [
        json.loads(line) for line in service.client.post("/rows", content=body).text.splitlines()
    ]


def failed(*command, **options):
    done = subprocess.run(
        [*map(str, command)], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode
    return done.stdout + done.stderr


@pytest.mark.program
def test_a_row_with_its_label_is_the_label_of_a_row_that_waits_and_is_learned_once(service):
    service.predict("p", a=1)
    assert lines(service, {"id": "p", "a": 1, "y": 2.5}) == [{"id": "p"}]
    assert service.label("p", 2.5).status_code == 202 and service.label("p", 3).status_code == 409
    whole = {"id": "q", "a": 2, "y": 1.5}
    (first,), before = lines(service, whole), service.rows
    assert first["y"] and lines(service, whole, whole) == [{"id": "q"}] * 2  # a retry
    assert lines(service, whole | {"y": 9})[0]["code"] == 409
    twice = lines(service, {"id": "r", "a": 1, "y": 1}, {"id": "r", "a": 1, "y": 1})
    assert twice[1] == {"id": "r"} and service.rows - before <= 2
    other = lines(service, {"id": "s", "a": 1, "y": 1}, {"id": "s", "a": 1, "y": 2})
    assert other[0]["y"] is not None and other[1]["code"] == 409
    assert [one["y"] for one in events(service.run) if one["id"] in "pq" and "y" in one] == [
        2.5,
        1.5,
    ]


@pytest.mark.program
def test_an_answer_comes_before_the_next_line_is_sent(service):
    url = service.client.base_url
    live = http.client.HTTPConnection(url.host, url.port, timeout=20)
    live.putrequest("POST", "/rows")
    live.putheader("Transfer-Encoding", "chunked")
    live.endheaders()
    line = b'{"a": 1, "who": "m2", "y": 0.5}\n'
    live.send(b"%x\r\n%s\r\n" % (len(line), line))
    answer = live.getresponse()
    assert json.loads(answer.readline())["row"] == service.rows
    live.send(b"0\r\n\r\n")
    assert answer.read() == b""
    live.close()


@pytest.mark.program
def test_nobody_goes_back_in_a_run_that_is_served(service):
    for i in range(60):
        service.predict(f"b{i}", a=i % 7)
    kept = min(int(path.stem) for path in (service.run / "checkpoints").iterdir())
    assert "in use" in failed(*COMMAND, service.run, "--port", 0, "--back-to", kept)
    assert len(events(service.run)) == service.rows > kept


@pytest.mark.program
def test_a_service_that_cannot_be_as_asked_says_why(tmp_path):
    new = [*COMMAND, tmp_path / "run", "--like", sample(tmp_path), *NEW]
    empty = failed(*new, env=os.environ | {"FORETRACE_TOKEN": ""})
    assert "FORETRACE_TOKEN is empty" in empty
    code = "import sys; sys.modules['uvicorn'] = None; from foretrace.cli import run; run()"
    missing = failed(sys.executable, "-c", code, *new[3:])
    assert "pip install 'foretrace[serve]'" in missing and "unexpected" not in missing
    assert not (tmp_path / "run").exists()


@pytest.mark.program
def test_a_later_start_takes_a_row_of_later_columns_and_no_option_that_would_end_it(tmp_path):
    run = tmp_path / "run"
    new = [*COMMAND, run, "--like", sample(tmp_path), *NEW]
    assert "outliers='stop' would end" in failed(*new, "--waiting", 0, "--outliers", "stop")
    with serving(run) as service:
        assert service.post("/predict", id="a", row={"who": "m0", "extra": 5}).status_code == 422
        assert service.predict("b", a=1, extra=5).status_code == 200
    with serving(run, new=False) as service:
        assert service.post("/predict", id="c", row={"who": "m0", "extra": 6}).status_code == 200
        assert service.rows == 2
        assert service.post("/v2/models/run/infer", id="d", inputs=[]).status_code == 422
    assert "waiting" in failed(*COMMAND, run, "--port", 0, "--waiting", 10_000)
    quiet = "--rows 20 --experts lags --run-dir".split()
    subprocess.run(
        [sys.executable, "-m", "foretrace", "stream", sample(tmp_path), "--target", "y", *quiet]
        + [tmp_path / "file"],
        check=True,
        capture_output=True,
    )
    assert "is a run of `foretrace stream`" in failed(*COMMAND, tmp_path / "file", "--port", 0)
    assert not (tmp_path / "file" / "events.jsonl").exists()


def test_a_row_that_starts_anew_is_asked_for_like_the_first_of_a_member():
    streams = Streams(Encoder([Column("a", "numeric")]), NumberTarget(), SlotTable(2))
    streams.push("m", {"a": 1.0}, 2.0)
    assert not streams.peek("m", {"a": 1.0}).is_new
    assert streams.peek("m", {"a": 1.0}, reset=True).is_new == 1


@pytest.mark.program
def test_rows_without_ids_are_answered_one_by_one_where_a_chunk_would_be_faster(tmp_path):
    with serving(tmp_path / "run", "--size", "fast", new=["--waiting", 0]) as service:
        for i in range(9):
            (found,) = lines(service, {"a": i % 7, "y": i % 7})
            assert found["row"] == i + 1


def test_an_answer_for_a_client_that_leaves_is_dropped():
    class Leaving(Future):
        def done(self):  # it leaves just after it was looked for
            self.cancel()
            return False

    for request in (Request(answer=Leaving()), Request(answer=Leaving())):
        request.done({})
        request.refuse(503, "")


def test_a_journal_has_one_owner(tmp_path):
    journal = Journal(tmp_path / "events.jsonl", lambda _: b"")
    assert journal.peek(1) == b""
    with pytest.raises(LockedError, match=r"events\.jsonl is in use"):
        Journal(tmp_path / "events.jsonl", lambda _: b"").peek(1)
    journal.close()


def test_events_set_aside_stay_after_a_second_return_to_the_same_row(tmp_path):
    run, journal = Run(tmp_path), tmp_path / "events.jsonl"
    (tmp_path / "checkpoints").mkdir()
    kept = tmp_path / "checkpoints" / "1.safetensors"
    ft.save(kept, {"a": np.ones(1)}, extra={"position": [1, 1, 3]})
    for count in (3, 2):
        journal.write_bytes(b"{}\n" * count)
        service_of_runs.go_back(run, 1)
    sizes = sorted(path.stat().st_size for path in tmp_path.glob("events-after-1*.jsonl"))
    assert sizes == [3, 6]


@pytest.mark.parametrize("writes", range(2))
def test_a_crash_while_going_back_leaves_a_checkpoint_that_fits_the_journal(
    writes, tmp_path, monkeypatch
):
    run, journal = Run(tmp_path), tmp_path / "events.jsonl"
    (tmp_path / "checkpoints").mkdir()
    journal.write_bytes(b"{}\n" * 3)
    for row, path in ((1, tmp_path / "checkpoints" / "1.safetensors"), (3, run.checkpoint)):
        ft.save(path, {"a": np.ones(1)}, extra={"position": [row, row, 3 * row]})
    write, count = service_of_runs.write_atomically, iter(range(9))

    def write_or_die(path, data):
        if next(count) == writes:
            raise KeyboardInterrupt
        write(path, data)

    monkeypatch.setattr(service_of_runs, "write_atomically", write_or_die)
    with pytest.raises(KeyboardInterrupt):
        service_of_runs.go_back(run, 1)
    assert ft.read_extra(run.checkpoint)["position"][2] <= journal.stat().st_size
    service_of_runs.go_back(run, 1)
    assert journal.read_bytes() == b"{}\n"
    assert (tmp_path / "events-after-1.jsonl").read_bytes() == b"{}\n" * 2


@pytest.mark.program
def test_a_time_of_day_that_jumps_changes_nothing(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import itertools, time\n"
        "now, jumps = time.time, itertools.cycle([0, 9e8, -1e9])\n"
        "time.time = lambda: now() + next(jumps)\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    with serving(tmp_path / "run", env=os.environ | {"PYTHONPATH": paths}) as one:
        for i in range(60):
            assert one.predict(f"r{i}", a=i).status_code == 200
            assert one.label(f"r{i}", i / 2).status_code == 202
        age = one.client.get("/state.json").json()["checkpoint_age"]
    assert 0 <= age < 600
    assert_equals_a_run_on_the_journal(tmp_path / "run", tmp_path)
