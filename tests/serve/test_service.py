"""A service: rows now, labels later, and what was answered is on disk and learned once."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from processes import printed
from services import COMMAND, Service, assert_equals_a_run_on_the_journal, events, serving

pytestmark = pytest.mark.program
TOKEN = {"FORETRACE_TOKEN": "secret-word"}


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """A service with a token, which its client sends."""
    run = tmp_path_factory.mktemp("service") / "run"
    with serving(run, env=os.environ | TOKEN) as one:
        one.client.headers["Authorization"] = "Bearer secret-word"
        yield one


def test_a_row_is_learned_once_and_its_label_when_it_comes(service):
    first, before = service.predict("a1", a=1).json(), service.rows
    assert {"id", "row", "y", "low", "high"} == {*first}
    assert service.predict("a1", a=1).json() == first  # asked again
    assert service.label("a1", 3.5).status_code == 202
    assert service.label("a1", 3.5).status_code == 202  # a retry
    assert (service.label("a1", 4).status_code, service.label("none", 4).status_code) == (409, 404)
    assert service.predict("a1", a=1).status_code == 409
    assert service.rows == before + 1
    lines = [line for line in events(service.run) if line["id"] == "a1"]
    assert lines == [{"id": "a1", "c": "u", "who": "m0", "a": 1}, {"id": "a1", "y": 3.5}]


def test_a_row_that_waits_too_long_is_forgotten(service):
    for i in range(41):
        assert service.predict(f"w{i}", a=i).status_code == 200
    assert service.label("w0", 1).status_code == 410
    assert service.label("w40", 1).status_code == 202
    assert "foretrace_rows_dropped" in service.client.get("/metrics").text


@pytest.mark.parametrize(
    ("path", "body", "code", "words"),
    [
        ("/predict", '{"id": "x", "row": {"a": "red", "who": "m0"}}', 422, "'a' holds 'red'"),
        ("/predict", '{"id": "x", "row": {"a": NaN, "who": "m0"}}', 422, "NaN"),
        ("/predict", '{"id": "x", "row": {"a": 1e999, "who": "m0"}}', 422, "'a' holds"),
        ("/predict", '{"id": "x", "row": {"a": [1], "who": "m0"}}', 422, "holds a list"),
        ("/predict", '{"id": "x", "row": {"a": 1, "y": 2, "who": "m0"}}', 422, "target"),
        ("/predict", '{"id": "x", "row": {"a": 1}}', 422, "'who'"),
        ("/predict", '{"id": "x", "row": {"other": 1, "who": "m0"}}', 422, "none of the columns"),
        ("/predict", '{"row": {"a": 1, "who": "m0"}}', 422, "id"),
        ("/predict", '{"id": "%s", "row": {"a": 1, "who": "m0"}}' % ("i" * 300), 422, "256"),
        ("/predict", "[" * 100_000, 422, "not JSON"),
        ("/predict", " " * 2**20 + "{}", 413, "bytes"),
        ("/label", '{"id": "x"}', 422, "expected"),
        ("/label", '{"id": "x", "y": "red"}', 422, "number"),
        ("/label", '{"id": "../../etc/passwd", "y": 1}', 404, "no row"),
        ("/v2/models/other/infer", "{}", 404, ""),
        ("/v2/models/run/infer", '{"inputs": 3}', 422, "inputs"),
    ],
)
def test_what_is_wrong_is_named_and_changes_nothing(service, path, body, code, words):
    before, size = service.rows, (service.run / "events.jsonl").stat().st_size
    answer = service.client.post(path, content=body)
    assert (answer.status_code, words in answer.text) == (code, True), answer.text
    assert (service.rows, (service.run / "events.jsonl").stat().st_size) == (before, size)


def test_a_wrong_token_is_refused_on_every_route_but_health_and_page(service):
    wrong = {"Authorization": "Bearer wrong"}
    for path in ("/metrics", "/state.json", "/openapi.json", "/forecast"):
        assert service.client.get(path, headers=wrong).status_code == 401
    assert service.client.post("/predict", headers=wrong, content="{}").status_code == 401
    for path in ("/", "/v2/health/live", "/v2/health/ready"):
        assert service.client.get(path, headers=wrong).status_code == 200


def test_lines_and_kserve_and_descriptions(service):
    lines = [{"a": i, "c": "v", "who": "m1", "y": i / 2} for i in range(30)]
    lines += [{"id": "q", "a": 3, "who": "m1"}, {"id": "q", "y": 1.5}, {"id": "never", "y": 1}]
    body = "".join(json.dumps(line) + "\n" for line in lines) + "{broken\n"
    answers = service.client.post("/rows", content=body).text.splitlines()
    found = [json.loads(line) for line in answers]
    assert [one["row"] for one in found[:31]] == [*range(found[0]["row"], found[0]["row"] + 31)]
    assert found[31] == {"id": "q"} and [one["code"] for one in found[32:]] == [404, 422]
    columns = [{"name": "a", "data": [1, 2]}, {"name": "who", "data": ["m0", "m1"]}]
    infer = service.post("/v2/models/run/infer", id="k", inputs=columns).json()
    assert len(infer["outputs"][0]["data"]) == 2 and service.label("k-1", 2).status_code == 202
    row = service.client.get("/openapi.json").json()["paths"]["/predict"]["post"]["requestBody"]
    properties = row["content"]["application/json"]["schema"]["properties"]
    assert {*properties["row"]["properties"]} == {"a", "c", "who"}
    assert service.client.get("/forecast").status_code == 404


def test_predictions_of_lines_are_sent_while_lines_still_come(service):
    """Also where the body comes in parts: none of them may be taken for the client's leave."""
    for _ in range(8):
        parts = [b'{"a": 1, "who": "m1", "y": 0.5}\n' * 20 for _ in range(5)]
        assert service.client.post("/rows", content=iter(parts)).text.count('"row"') == 100


def test_no_generated_request_makes_the_service_fail(service):
    url = str(service.client.base_url)
    words = "--checks not_a_server_error --phases fuzzing --max-examples 8 --header".split()
    command = ["run", f"{url}/openapi.json", *words, "Authorization: Bearer secret-word"]
    assert "passed" in printed(Path(sys.executable).with_name("schemathesis"), *command)


def test_a_second_service_on_the_run_is_refused(service):
    command = [*COMMAND, str(service.run), "--port", "0"]
    second = subprocess.run(command, capture_output=True, text=True, check=False)
    assert second.returncode == 2 and "in use" in second.stderr + second.stdout


def asked(service, draw, acknowledged, count):
    """Ask for rows and their labels until the service is gone, or `count` events are done."""
    waiting = []
    try:
        for _ in range(count):
            number = len(acknowledged)
            if waiting and draw.uniform() < 0.5:
                id, y = waiting.pop(draw.integers(len(waiting)))
                if service.label(id, y).status_code == 202:
                    acknowledged.append({"id": id, "y": y})
            elif service.predict(f"r{number}", a=number % 7).status_code == 200:
                acknowledged.append({"id": f"r{number}", "a": number % 7})
                waiting.append((f"r{number}", 0.5 * (number % 7)))
    except Exception:
        return


def test_a_killed_service_loses_nothing_and_learns_nothing_twice(tmp_path):
    """Also with a torn last line; the state is that of one process that reads the journal."""
    draw, acknowledged = np.random.default_rng(0), []
    for attempt in range(4):
        service = Service(tmp_path / "run", new=not attempt)
        arguments = service, draw, acknowledged, 400 if attempt < 3 else 60
        client = threading.Thread(target=asked, args=arguments)
        client.start()
        if attempt == 3:
            client.join()
            assert service.end() == 0
        else:
            client.join(float(draw.uniform(0.3, 1.2)))
            service.kill()
            client.join()
            with open(tmp_path / "run" / "events.jsonl", "a") as journal:
                journal.write('{"id": "torn", "a"')
    written = events(tmp_path / "run")
    short = [{k: v for k, v in line.items() if k in ("id", "a", "y")} for line in written]
    assert len(acknowledged) > 60
    assert all(short.count(one) == 1 for one in acknowledged)
    assert_equals_a_run_on_the_journal(tmp_path / "run", tmp_path)


def test_a_full_disk_refuses_and_learns_nothing(tmp_path):
    with serving(tmp_path / "run", limit=4) as service:  # 4 KiB
        codes = [service.predict(f"r{i}", a=i % 7).status_code for i in range(200)]
        assert {*codes} == {200, 507} and codes[-1] == 507
        assert service.rows == codes.count(200) == len(events(service.run))
        assert service.client.get("/v2/health/ready").status_code == 200


def test_a_service_that_stops_before_its_first_row_begins_later(tmp_path):
    with serving(tmp_path / "run") as service:
        assert service.end() == 0, service.said
    with serving(tmp_path / "run", new=False) as service:
        assert service.predict("r", a=1).json()["row"] == 1


def test_a_copy_of_a_run_has_its_own_journal(tmp_path):
    with serving(tmp_path / "run") as service:
        service.predict("a", a=1)
    shutil.copytree(tmp_path / "run", tmp_path / "copy")
    with serving(tmp_path / "copy", new=False) as copy:
        assert copy.predict("b", a=2).json()["row"] == 2
    assert (len(events(tmp_path / "run")), len(events(tmp_path / "copy"))) == (1, 2)


def test_a_later_start_refuses_other_options_and_shows_earlier_scores(tmp_path):
    like = tmp_path / "like.jsonl"
    with serving(tmp_path / "run", "--log-every", 10) as service:
        service.client.post("/rows", content='{"a": 1, "who": "m0", "y": 2}\n' * 20)
    with serving(tmp_path / "run", "--like", like, "--log-every", 5, new=False) as service:
        shown = service.client.get("/state.json").json()["records"]
        assert [one["row"] for one in shown if one["kind"] == "stream"] == [10, 20]
        service.client.post("/rows", content='{"a": 1, "who": "m0", "y": 2}\n' * 5)
        assert service.client.get("/state.json").json()["records"][-1]["row"] == 25
        assert "foretrace_mae" in service.client.get("/metrics").text
    command = [*COMMAND, str(tmp_path / "run"), "--target", "a", "--port", "0"]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert other.returncode == 2 and "target" in other.stderr


def test_frozen_rolled_back_and_replayed(tmp_path):
    run = tmp_path / "run"
    with serving(run, "--checkpoints", 3) as service:
        for i in range(120):
            service.predict(f"r{i}", a=i % 7)
            service.label(f"r{i}", 0.5 * (i % 7))
    assert service.process.returncode == 0
    kept = sorted(int(path.stem) for path in (run / "checkpoints").iterdir())
    assert len(kept) == 3
    with serving(run, "--freeze", new=False) as frozen:
        assert (
            frozen.predict("f", a=3).status_code == 200 and frozen.label("f", 1).status_code == 403
        )
        assert frozen.rows == 240 == len(events(run))
    with serving(run, "--back-to", kept[0], new=False) as back:
        assert back.rows == kept[0] == len(events(run))
        assert back.predict("again", a=1).status_code == 200
    (run / "checkpoint.safetensors").write_bytes(b"of another version")
    with serving(run, new=False) as replayed:
        assert replayed.rows == kept[0] + 1
        assert "learned again" in "".join(replayed.said)
    assert_equals_a_run_on_the_journal(run, tmp_path)


def test_a_service_that_forecasts_takes_rows_with_their_numbers(tmp_path):
    with serving(tmp_path / "run", "--horizon", 2, new=["--waiting", "0"]) as service:
        lines = [{"a": i % 7, "c": "u", "who": f"m{i % 2}", "y": i % 7} for i in range(60)]
        body = "".join(json.dumps(line) + "\n" for line in lines)
        found = service.client.post("/rows", content=body).text.splitlines()
        assert len(found) == 60 and "y+2" in json.loads(found[-1])
        ahead = service.client.get("/forecast").json()
        assert [(one["who"], one["ahead"]) for one in ahead] == [
            ("m0", 1),
            ("m0", 2),
            ("m1", 1),
            ("m1", 2),
        ]
        assert len(service.client.get("/forecast?member=m1").json()) == 2
        assert service.client.get("/forecast?member=none").status_code == 404
        assert service.predict("a", a=1).status_code == service.label("a", 1).status_code == 404


def test_a_service_that_other_machines_reach_without_a_token_warns(tmp_path):
    with serving(tmp_path / "run", "--host", "0.0.0.0") as service:
        assert "whoever reaches 0.0.0.0" in "".join(service.said)
