"""The examples run, are short, and keep their promises."""

import functools
import gzip
import http.server
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from quick import FLAGS

import foretrace as ft

PYTHON = f"PYTHON={sys.executable}"
FOLDER = Path(__file__).parents[2] / "examples"


def printed(*command, cwd, env=None):
    """Run a command, or Python with a script; return what it prints."""
    command = [str(word) for word in command]
    command = command if command[0] in ("make", "node") else [sys.executable, *command]
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture
def run(tmp_path):
    return lambda name, *words: printed(
        FOLDER / name, *words, cwd=tmp_path, env={"XLA_FLAGS": FLAGS}
    )


def skip_without(*programs):
    if missing := [name for name in programs if shutil.which(name) is None]:
        pytest.skip(f"{', '.join(missing)} not installed")


def numbers(text, pattern):
    return [float(found) for found in re.findall(pattern, text)]


def test_every_example_is_tested_and_short():
    names = sorted(path.name for path in FOLDER.glob("*.py"))
    numbered = [
        "01_stream",
        "02_copy_task",
        "03_custom_cell",
        "04_compare_rules",
        "05_learn_elsewhere",
        "06_many_sensors",
    ]
    assert names == [*(f"{name}.py" for name in numbered), "sensors.py"]
    for name in names:
        assert len((FOLDER / name).read_text().splitlines()) < 90


@pytest.mark.program
def test_the_stream_that_ships_is_what_its_script_makes(run, tmp_path):
    assert "5,000 rows" in run("sensors.py", "--out", tmp_path / "made.csv.gz")
    made, shipped = (
        gzip.decompress(path.read_bytes())
        for path in (tmp_path / "made.csv.gz", FOLDER / "sensors.csv.gz")
    )
    assert made == shipped
    assert (FOLDER / "sensors.csv.gz").stat().st_size < 100_000


@pytest.mark.program
def test_memory_beats_the_last_label_on_it(tmp_path):
    command = f"-m foretrace stream {FOLDER / 'sensors.csv.gz'} --target reject --run-dir run"
    printed(*command.split(), cwd=tmp_path, env={"XLA_FLAGS": ""})  # optimised: many rows
    lines = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    total = [line["total"] for line in lines if "total" in line][-1]
    assert total["accuracy"] > 0.8 > 0.7 > total["majority_accuracy"] > total["no_change_accuracy"]


@pytest.mark.program
def test_a_graph_learns_without_jax(run, tmp_path):
    pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    out = run("05_learn_elsewhere.py", "write", tmp_path / "model.onnx")
    assert "model.state.safetensors" in out
    absent = tmp_path / "absent"
    for name in ("jax", "foretrace"):
        (absent / name).mkdir(parents=True)
        (absent / name / "__init__.py").write_text("raise ImportError('not at run time')")
    command = "05_learn_elsewhere.py", "learn", tmp_path / "model.onnx", "sensors.csv.gz"
    said = printed(*command, cwd=FOLDER, env={"PYTHONPATH": str(absent)})
    right = numbers(said, r"1000 rows ([\d.]+)")
    assert len(right) == 5 and max(right[1:]) > 0.8


@pytest.mark.program
def test_stream(run):
    out = run("01_stream.py", "--steps", 900, "--report", 300)
    losses, right = numbers(out, r"loss ([\d.]+)"), numbers(out, r"accuracy ([\d.]+)%")
    assert losses[2] < 0.8 < losses[0] and right[2] > 65 > right[0]
    assert "carried from step to step" in out


@pytest.mark.program
def test_copy_task(run, tmp_path):
    out = run("02_copy_task.py", "--steps", 120, "--run-dir", tmp_path / "run")
    assert "120 of 120" in out and (tmp_path / "run" / "curves.png").exists()
    (loss,) = numbers(out, r"(\d\.\d\de[+-]\d\d)")
    assert loss < 0.6


@pytest.mark.program
def test_custom_cell(run):
    out = run("03_custom_cell.py", "--steps", 100)
    (laws,) = numbers(out, r"obeys (\d+) laws")
    losses = numbers(out, r"loss ([\d.]+)")
    assert laws > 30 and losses[-1] < 0.55 < losses[0]


@pytest.mark.program
def test_compare_rules(run):
    names = ["SPATIAL", "ONLINE", "BPTT"]
    out = run("04_compare_rules.py", "--steps", 60, "--rules", *names)
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in out.splitlines()
        if line.count("│") > 3
    }
    loss = {rule: float(cells[0]) for rule, cells in rows.items()}
    assert list(rows) == names
    assert loss["BPTT"] < loss["ONLINE"] < loss["SPATIAL"] < 0.693
    assert (
        float(rows["BPTT"][1]) == 1.0 and float(rows["SPATIAL"][1]) < float(rows["ONLINE"][1]) < 1.0
    )


MACHINES = {
    "desktop": ("cc",),
    "cortex-m4": ("arm-none-eabi-gcc", "qemu-system-arm"),
    "riscv32": ("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
}


@pytest.fixture(scope="module")
def microcontroller(tmp_path_factory):
    """Return the folder of the example's C files, and JAX's outputs after 100 rows."""
    folder = tmp_path_factory.mktemp("examples") / "microcontroller"
    shutil.copytree(FOLDER / "microcontroller", folder)
    shutil.copy(FOLDER / "sensors.csv.gz", folder.parent)
    script = """
exec(open("write.py").read())
import jax.numpy as jnp
state = learner.init()
for weight, temperature, reject in rows[:100]:
    x = jnp.array([[(weight - 5000) / 200, (temperature - 210) / 20]], jnp.float32)
    state, info = learner.step(state, x, jnp.array([reject]))
print(*(info.outputs[0] * 1e6).tolist())
"""
    said = printed("-c", script, "../sensors.csv.gz", cwd=folder)
    return folder, [float(number) for number in said.split("\n")[-2].split()]


@pytest.mark.program
@pytest.mark.parametrize("machine", list(MACHINES))
def test_a_model_learns_on_a_microcontroller(microcontroller, machine):
    folder, expected = microcontroller
    skip_without("make", *MACHINES[machine])
    said = printed("make", PYTHON, f"run-{machine}", cwd=folder)
    outputs = numbers(said, r"millionths (-?\d+)") + numbers(said, r"millionths -?\d+ (-?\d+)")
    assert outputs == pytest.approx(expected, abs=10)
    assert numbers(said, r"row 5000: ([\d.]+) %")[0] > 70
    assert numbers(said, r"bytes of the context: (\d+)")[0] <= 16 * 1024


@pytest.mark.program
def test_a_run_of_a_stream_learns_on_a_microcontroller(microcontroller):
    skip_without("make", "cc", *MACHINES["cortex-m4"])
    folder, _ = microcontroller
    words = "../sensors.csv.gz --target temperature --ignore reject --experts row short --rows 300"
    printed(*f"-m foretrace stream {words} --run-dir run".split(), cwd=folder)
    given = "RUN=run", "CSV=../sensors.csv.gz", "run-stream-desktop", "run-stream-cortex-m4"
    said = printed("make", PYTHON, *given, cwd=folder)
    errors = numbers(said, r"row 5000: mean absolute error in thousandths (\d+)")
    assert len(errors) == 2 and errors[0] == pytest.approx(errors[1], abs=1) and errors[0] < 60
    # The mixture compares all of its predictions with each other.
    assert numbers(said, r"bytes of the context: (\d+)")[0] <= 44_000


@pytest.mark.program
def test_its_code_fits_a_small_flash(microcontroller):
    skip_without("make", "arm-none-eabi-gcc")
    sizes = printed("make", PYTHON, "sizes", cwd=microcontroller[0])
    assert int(sizes.split("\n")[-2].split()[0]) <= 16 * 1024


@pytest.fixture
def page(tmp_path):
    """Return the folder of the example's page, with its program written."""
    pytest.importorskip("ziglang", reason="pip install 'foretrace[native]'")
    folder = tmp_path / "browser"
    shutil.copytree(FOLDER / "browser", folder)
    printed("write.py", cwd=folder)
    return folder


@pytest.mark.program
def test_the_page_learns_in_webassembly(page):
    skip_without("node")
    assert (page / "model.wasm").stat().st_size < 150_000
    for arguments in ([], [FOLDER / "sensors.csv.gz"]):
        said = printed("node", "check.mjs", *arguments, cwd=page)
        assert numbers(said, r"accuracy ([\d.]+)")[-1] > 0.85


@pytest.mark.program
def test_the_page_learns_in_a_browser(page, tmp_path):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("Chromium is not installed")
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(page))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--dump-dom"]
        options += [f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=60000"]
        command = [browser, *options, f"http://127.0.0.1:{server.server_port}/#demo"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        server.shutdown()
    assert numbers(done.stdout, r"(\d+) learned")[0] > 1000, done.stdout + done.stderr
    assert numbers(done.stdout, r'id="network">([\d.]+) %')[0] > 90


def test_parts_of_many_sensors_hold_each_row_once_and_go_on(tmp_path):
    many = SimpleNamespace(**runpy.run_path(str(FOLDER / "06_many_sensors.py")))
    rows = [f"s{i % 17},{i % 5},{i * i % 7}" for i in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["sensor,x,y", *rows]) + "\n")
    counts = many.split(str(tmp_path / "rows.csv"), "sensor", 3, tmp_path)
    paths = list(counts)
    parts = [path.read_text().splitlines()[1:] for path in paths]
    assert sorted(sum(parts, [])) == sorted(rows)
    assert all(len({row.split(",")[0] for row in part}) >= 1 for part in parts)
    names = [{row.split(",")[0] for row in part} for part in parts]
    assert sum(map(len, names)) == len(set.union(*names)) == 17
    assert list(counts.values()) == [len(found) for found in names]
    options = {"target": "y", "member": "sensor", "task": "regression"}
    options |= {"members": 17, "model": ft.stream.ModelConfig(experts=("baselines",))}
    first = many.learn(paths[0], **options)
    lines = paths[0].with_suffix(".jsonl").read_text()
    assert len(lines.splitlines()) == first["rows"] == len(parts[0])
    assert many.learn(paths[0], **options) == first
    assert paths[0].with_suffix(".jsonl").read_text() == lines
