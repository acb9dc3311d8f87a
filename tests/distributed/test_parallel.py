"""Runs on several devices or processes equal one up to rounding, and survive a lost process."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from processes import printed
from quick import FLAGS

from foretrace._distributed.devices import Devices
from foretrace._runs.metrics import read_metrics

RUNS = """
import dataclasses, signal, sys
from pathlib import Path
from foretrace import experiment
from foretrace._runs.progress import ProgressBar
from foretrace._runs import follow
from trained import TRAINED

config = dataclasses.replace(
    TRAINED, steps=12, batch_size=8, log_every=4, evaluate_every=12, align_every=None,
    checkpoint_every=6, final_sequences=8,
)
folder = Path(sys.argv[1])

class Interrupting(ProgressBar):
    def reach(self, at, text):
        if at == 7:
            signal.raise_signal(signal.SIGINT)

for name, chunk in {"whole": None, "chunks": 3}.items():
    config = dataclasses.replace(config, chunk=chunk)
    for devices in (1, 8):
        experiment.train(config, folder / f"{name}-{devices}", devices=devices, show_progress=False)
shown, follow.ProgressBar = follow.ProgressBar, lambda *_, **__: Interrupting(False)
assert experiment.train(config, folder / "moved", devices=8).scores is None
follow.ProgressBar = shown
experiment.train(config, folder / "moved", devices=1, resume=True, show_progress=False)
"""

# A rate that is constant: programs that do not know how many steps there are.
SMALL = (
    "train copy --task.pattern-length 3 --task.padding 1 --task.bits 2 --network.depth 1 "
    "--network.model-size 6 --state-size 4 --batch-size 8 --steps 60 --log-every 10 "
    "--evaluate-every 60 --align-every None --checkpoint-every 10 --validation-sequences 8 "
    "--final-sequences 8 --optimizer.schedule constant"
).split()
TESTS = Path(__file__).parents[1]


def surroundings(**more):
    return os.environ | {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": FLAGS} | more


def start(*arguments, begin=SMALL, **environment):
    command = [sys.executable, "-m", "foretrace", *begin, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=surroundings(**environment), **pipes)


def start_two(*arguments):
    """Start a run in two processes, as Slurm on two machines, over the loopback interface."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = str(one.getsockname()[1])
    job = {"JOB_ID": 1, "STEP_NODELIST": "127.0.0.1", "NTASKS": 2, "LOCALID": 0}
    job = {f"SLURM_{name}": str(value) for name, value in job.items()}
    job |= {"JAX_COORDINATOR_PORT": port, "JAX_COORDINATOR_BIND_ADDRESS": f"127.0.0.1:{port}"}
    return [start(*arguments, "--cluster", **job, SLURM_PROCID=str(i)) for i in range(2)]


def finish(process, code=0):
    out, err = process.communicate(timeout=300)
    assert process.returncode == code, (process.returncode, out, err)
    return err


def assert_same_but_for_rounding(a, b):
    one, other = (read_metrics(path / "metrics.jsonl") for path in (a, b))
    assert [(r["kind"], r["step"]) for r in one] == [(r["kind"], r["step"]) for r in other]
    for x, y in zip(one, other, strict=True):
        for name in x.keys() & {"loss", "gradient_norm", "accuracy"}:
            np.testing.assert_allclose(x[name], y[name], rtol=1e-9)


@pytest.mark.program
def test_eight_devices_are_one(tmp_path):
    environment = surroundings(XLA_FLAGS=f"{FLAGS} --xla_force_host_platform_device_count=8")
    environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    printed(sys.executable, "-W", "ignore", "-c", RUNS, tmp_path, env=environment)
    for name in ("whole", "chunks"):
        assert_same_but_for_rounding(tmp_path / f"{name}-1", tmp_path / f"{name}-8")
    assert_same_but_for_rounding(tmp_path / "chunks-1", tmp_path / "moved")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "alone"
    finish(start("--run-dir", path))
    return path


def until_saved(path, process):
    while not (path / "checkpoint.safetensors").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)


@pytest.mark.program
def test_a_process_whose_partner_is_lost_ends_at_once(tmp_path):
    path = tmp_path / "lost"
    first, second = start_two("--run-dir", path, "--steps", 100_000)
    until_saved(path, first)
    second.kill()
    second.communicate()
    # Without the way out of `main`, JAX would wait for 90 seconds and abort.
    assert "another process of this run was lost" in finish(first, 1)
    saved = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])["step"]
    assert saved >= 10


@pytest.mark.program
def test_a_stopped_run_of_two_processes_goes_on_in_one(tmp_path, alone):
    path = tmp_path / "stopped"
    first, second = start_two("--run-dir", path)
    until_saved(path, first)
    second.send_signal(signal.SIGTERM)
    for process in (first, second):
        finish(process, 130)
    finish(start("resume", path, begin=()))
    assert_same_but_for_rounding(alone, path)


def test_a_batch_that_devices_cannot_share():
    assert Devices(3).number == 1
    with pytest.raises(ValueError, match="devices=0: expected a number"):
        Devices(3, 0)
