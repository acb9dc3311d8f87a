"""The page "Run it in production" and its examples, run against services as they are printed."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from services import events, serving

from foretrace.cli import _main as cli

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "howto" / "production.md").read_text()
EXAMPLES = ROOT / "examples"
SMALL = "--experts", "lags", "--log-every", 20  # to compile in seconds


def blocks(kind):
    return re.findall(rf"^```{kind}.*?\n(.*?)^```", PAGE, flags=re.DOTALL | re.MULTILINE)


def live(text, service):
    """Return a text with the address and the directory of a service in place of the page's."""
    address = str(service.client.base_url).removeprefix("http://")
    text = re.sub(r"(localhost|127\.0\.0\.1):8080", address, text)
    return re.sub(r"\bRUN\b", str(service.run), text)


def shell(text, folder):
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = ["bash", "-euc", text]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The service of the page, and all that its lines and the client have printed."""
    folder = tmp_path_factory.mktemp("production")
    (folder / "examples").symlink_to(EXAMPLES)
    install, start = blocks("bash")[0].splitlines()
    assert install == "pip install '.[serve]'"
    command, verb, _, *options = shlex.split(start)
    assert (command, verb) == ("foretrace", "serve")
    like = options.index("--like") + 1
    options[like] = str(ROOT / options[like])
    with serving(folder / "run", *options, *SMALL, new=False) as one:
        one.printed = shell(live(blocks("bash")[1], one), folder)
        one.folder = folder
        yield one


@pytest.mark.program
def test_the_lines_of_curl_are_answered(service):
    found = [
        json.loads(one) for one in re.sub(r"\}(\s*)\{", "}\n{", service.printed).split("\n") if one
    ]
    assert [len(one) for one in found] == [5, 1, 5, 5] and found[1] == {"id": "a1"}
    assert {*found[0]} == {"id", "row", "y", "probability", "probabilities"}
    assert [one["row"] for one in (found[0], *found[2:])] == [1, 3, 4]


@pytest.mark.program
def test_the_client_is_that_of_the_page_and_runs_twice(service):
    client = (EXAMPLES / "07_service_client.py").read_text()
    (code,) = blocks("python")
    assert client.endswith(code) and len(code.splitlines()) < 15
    before = service.rows
    for _ in range(2):
        done = [sys.executable, "-c", live(client, service)]
        said = subprocess.run(done, capture_output=True, text=True, check=True).stdout
        assert said.count("\n") == 3
    assert service.rows == before + 12


@pytest.mark.program
def test_alarms_and_codes_are_those_of_the_service(service):
    names = set(re.findall(r"\bforetrace_\w+", "".join(blocks("yaml"))))
    rows = '{"weight": 503.2, "reject": "no"}\n' * 60
    assert service.client.post("/rows", content=rows).text.count("probability") == 60
    exposed = service.client.get("/metrics").text
    of_numbers = {"foretrace_mae", "foretrace_no_change_mae", "foretrace_recent_coverage"}
    assert len(names) > 8 and of_numbers < names
    assert [name for name in names - of_numbers if f"\n{name}" not in exposed] == []
    paths = service.client.get("/openapi.json").json()["paths"]
    described = {
        code for path in paths.values() for one in path.values() for code in one["responses"]
    }
    told = {
        code for cell in re.findall(r"^\| (\d[\d, ]*) \|", PAGE, re.M) for code in cell.split(", ")
    }
    assert described - {"403"} == told
    assert service.run.joinpath("events.jsonl").read_bytes().index(b"\n") == 45


@pytest.mark.program
def test_a_backup_is_a_run(service):
    shell(live(blocks("bash")[2], service), service.folder)
    before = events(service.run)
    with serving(service.folder / "BACKUP", new=False) as copy:
        copy.client.get("/v2/health/ready").raise_for_status()
        assert copy.rows == len(before) == service.rows
        copy.post("/predict", id="next", row={"weight": 500}).raise_for_status()
    assert events(service.run) == before


def test_examples_start_services():
    unit = (EXAMPLES / "service" / "foretrace.service").read_text()
    (start,) = re.findall(r"^ExecStart=\S+/foretrace (.*)$", unit, flags=re.M)
    docker = (EXAMPLES / "service" / "Dockerfile").read_text()
    (words,) = re.findall(r"^CMD (.*)$", docker, flags=re.M)
    name, *words = json.loads(words)
    assert name == "foretrace" and (ROOT / words[3].removeprefix("/src/")).exists()
    for arguments in (shlex.split(start), words):
        command = cli._parse(arguments)
        assert (command.checkpoints, command.config.target) == (5, "reject")
    (install,) = re.findall(r"^RUN pip install (.*)$", docker, flags=re.M)
    assert shlex.split(install)[-1] == "/src[serve]"  # COPY . /src, of a clone
    said = (ROOT / "pyproject.toml").read_text()
    assert re.search(r"^serve = \[", said, flags=re.M)
