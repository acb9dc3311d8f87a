"""Services in processes of their own, and what they have learned."""

import contextlib
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
from safetensors.numpy import load_file

import foretrace as ft
from foretrace._runs.directory import read_config_as
from foretrace.stream.runs.config import StreamConfig

COMMAND = (sys.executable, "-m", "foretrace", "serve")
NEW = "--target y --member who --waiting 40 --experts lags --checkpoint-every 25 --port 0".split()


def sample(folder):
    """Write a file like the rows of a service; return its path."""
    rows = [{"a": i % 7, "c": "uv"[i % 2], "who": f"m{i % 3}", "y": 0.5 * i} for i in range(40)]
    path = Path(folder, "like.jsonl")
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


class Service:
    """A service that runs; `client` asks it."""

    def __init__(self, run, *options, limit=None, env=None, new=True):
        self.run = Path(run)
        options += ("--like", sample(self.run.parent), *NEW) if new else ("--port", 0)
        options += tuple(new) if isinstance(new, list) else ()
        command = [str(word) for word in (*COMMAND, self.run, *options)]
        if limit is not None:  # no file may grow beyond it, as on a full disk
            command = ["bash", "-c", f'ulimit -f {limit}; exec "$@"', "bash", *command]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
        self.said = []
        for line in self.process.stdout:
            self.said.append(line)
            if found := re.search(r"at (http://\S+)", line):
                self.client = httpx.Client(base_url=found[1], timeout=60)
                return
        raise RuntimeError("".join(self.said))

    def post(self, path, **body):
        return self.client.post(path, json=body)

    def predict(self, id, **row):
        return self.post("/predict", id=id, row={"c": "u", "who": "m0"} | row)

    def label(self, id, y):
        return self.post("/label", id=id, y=y)

    @property
    def rows(self):
        return self.client.get("/state.json").json()["rows"]

    def kill(self):
        self.process.kill()
        self._over()

    def end(self):
        """Ask it to stop, as a system does; return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self._over()

    def _over(self):
        self.said += list(self.process.stdout)
        self.process.stdout.close()
        self.client.close()
        return self.process.wait(60)


@contextlib.contextmanager
def serving(*args, **options):
    """Yield a service, and end it."""
    service = Service(*args, **options)
    try:
        yield service
    finally:
        if service.process.poll() is None:
            service.end()


def events(run):
    return [json.loads(line) for line in Path(run, "events.jsonl").read_text().splitlines()]


def assert_equals_a_run_on_the_journal(run, folder):
    """Assert that one process that reads the journal learns the same, bit for bit."""
    config = read_config_as(Path(run), StreamConfig)
    ft.stream.run(config, Path(folder, "whole"))
    service, whole = (
        load_file(Path(one, "checkpoint.safetensors")) for one in (run, f"{folder}/whole")
    )
    assert service.keys() == whole.keys()
    for name, array in service.items():
        if not name.startswith("__"):
            np.testing.assert_array_equal(array, whole[name], err_msg=name)
