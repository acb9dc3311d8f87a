"""A run on a stream: scores, exact resume, kill -9, pipes, and clear errors."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from safetensors.numpy import load_file
from tiers import fast

import foretrace as ft
from foretrace._rows.lines import ReplacedError, SourceError
from foretrace._runs.directory import RunError
from foretrace._runs.files import LockedError, locked
from foretrace._runs.loop import DivergenceError
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.experiment._train import read_config
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow

pytestmark = pytest.mark.usefixtures("standard_promotion")
SIZES = {"size": "tiny", "depth": 1, "model_size": 4, "state_size": 3}
TINY = {"model": ModelConfig(**SIZES), "log_every": 50, "checkpoint_every": 70}
COUNT = 400


def table():
    """Rows with numbers, categories, times, gaps, bad values; the class of three rows before."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(COUNT):
        x = float(rng.normal())
        rows.append(
            {
                "time": f"2024-01-{1 + i // 24:02d} {i % 24:02d}:00",
                "x": ["NA", "inf", "1e9"][i % 3] if i % 41 == 40 else f"{x:.4f}",
                "color": ["red", "green", "", "blue"][i % 4],
                "class": ""
                if i % 53 == 52
                else "up"
                if i >= 3 and float(rows[i - 3]["z"]) > 0
                else "down",
                "z": f"{x:.4f}",
            }
        )
    return rows


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, rows = tmp_path_factory.mktemp("data"), table()
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    (folder / "a.csv").write_text("\n".join(lines) + "\n")
    (folder / "a.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "a.parquet")
    (folder / "a.txt").write_text("the same again? - " * 25)
    return folder


def state(run_dir):
    arrays = load_file(run_dir / "checkpoint.safetensors")
    # Holds seconds and what depends on them; `assert_same_run` compares the rest.
    del arrays["__extra__"]
    return arrays


def records(run_dir):
    """Return the record's lines without the machine's values, and of results only the last."""
    machine = ("seconds", "rows_per_second", "resident_mib", "microseconds")
    lines = [
        {k: v for k, v in r.items() if k not in machine}
        for r in read_metrics(run_dir / "metrics.jsonl")
    ]
    return [r for r in lines if r["kind"] != "result"] + [lines[-1]]


def assert_same_run(a, b):
    assert records(a) == records(b)
    one, two = state(a), state(b)
    assert set(one) == set(two)
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)
    extra = [
        ft.read_extra(path / "checkpoint.safetensors") | {"seconds": 0, "record": 0}
        for path in (a, b)
    ]
    assert extra[0] == extra[1]


RUNS = {
    "classes": ("a.csv", {"target": "class"}, {}),
    "late classes in chunks": (
        "a.jsonl",
        {"target": "class", "delay": 5, "chunk": 4, "task": "classification"},
        {},
    ),
    "forecast": ("a.parquet", {"target": "z", "horizon": 3, "delay": 2}, {"clip": None}),
    "text": ("a.txt", {}, {"learning_rate": 1e-2}),
    "all layers": (
        "a.csv",
        {"target": "class", "delay": 1},
        {"depth": 2, "rule": "hybrid(depth=2)"},
    ),
    "another cell": (
        "a.csv",
        {"target": "z"},
        {"cell": "min-gru", "state_size": 4, "rule": "hybrid"},
    ),
    "the paper's rule": ("a.csv", {"target": "z", "outliers": "mask"}, {"rule": "online"}),
}


@pytest.mark.full
@pytest.mark.parametrize(
    "name",
    fast(
        [
            "late classes in chunks",
            "forecast",
            "classes",
            "text",
            "all layers",
            "another cell",
            "the paper's rule",
        ]
    ),
)
def test_a_resumed_run_is_the_undisturbed_one_bit_for_bit(files, tmp_path, name):
    file, options, model = RUNS[name]
    config = StreamConfig(
        str(files / file), **TINY | options | {"model": ModelConfig(**SIZES | model)}
    )
    whole = follow(config, tmp_path / "whole", show_progress=False)
    assert whole.position.row == (COUNT if name != "text" else 450) and not whole.stopped
    for i, rows in enumerate((33, 100, 101, 222, None)):
        follow(config, tmp_path / "cut", rows=rows, resume=i > 0, show_progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    lines = read_metrics(tmp_path / "whole" / "metrics.jsonl")
    assert [r["step"] for r in lines if r["kind"] == "stream"][:3] == (
        [52, 100, 152] if "chunk" in options else [50, 100, 150]
    )
    last = lines[-1]
    assert last["kind"] == "result" and last["refused"] == 0
    if name == "classes":
        missing = sum(row["class"] == "" for row in table())
        # The first row has no answer yet.
        assert (
            last["scored"] == COUNT - 1 - missing and last["counts"]["missing targets"] == missing
        )
        assert last["counts"]["infinite"] == 3 and last["counts"]["outliers"] == 3
    if name == "text":
        assert last["accuracy"] > last["majority_accuracy"]


@pytest.mark.parametrize("cut", fast([-4, -1]), ids=["torn", "no line break"])
def test_a_torn_last_line_stays_behind_the_checkpoint(files, tmp_path, cut):
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    config = StreamConfig(str(tmp_path / "b.csv"), target="class", **TINY)
    # Row 210 is one of those with a checkpoint.
    (tmp_path / "b.csv").write_text("".join(lines[:211])[:cut])
    assert follow(config, tmp_path / "cut", show_progress=False).position.row == 210
    assert ft.read_extra(tmp_path / "cut" / "checkpoint.safetensors")["position"][0] == 209
    (tmp_path / "b.csv").write_text("".join(lines))
    follow(config, tmp_path / "cut", resume=True, show_progress=False)
    follow(config, tmp_path / "whole", show_progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.full
def test_the_first_rows_are_described_and_what_looks_wrong_is_said(tmp_path, capsys):
    rows = [f'"{i},5 C",3,{i % 2},2024-01-01T00:00:{i:02d},{i / 7}' for i in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["unit,same,x,t,y", *rows]) + "\n")
    expected = {
        "y": [
            "inputs, numbers: same, x",
            "inputs, categories: unit",
            "inputs, times: t",
            "target: y, a number",
        ],
        "t": ["target: t, a class", "the target 't' has 40 classes in 40 rows"],
        "same": ["the target 'same' is '3' in all of the first 40 rows"],
    }
    for target, lines in expected.items():
        config = StreamConfig(str(tmp_path / "a.csv"), target=target, **TINY)
        follow(config, tmp_path / target, rows=0)
        err = " ".join(capsys.readouterr().err.split())
        lines += [
            "column 'unit' has 40 different texts in 40 rows, such as '0,5 C'; if they are numbers"
        ]
        assert all(line in err for line in lines)
        assert ("column 'same' is '3' in all of the first 40 rows" in err) == (target != "same")


@pytest.mark.full
def test_first_rows_without_a_label_do_not_say_what_it_is(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,\n" * 20 + "1,0.5\n" * 20)
    config = StreamConfig(str(tmp_path / "a.csv"), target="y", **TINY | {"look_ahead": 10})
    with pytest.raises(ValueError, match="the first 10 rows have no value of 'y'.*--task"):
        follow(config, tmp_path / "run", show_progress=False)
    told = dataclasses.replace(config, task="regression")
    assert follow(told, tmp_path / "run", rows=15, show_progress=False).scores == {}


@pytest.mark.parametrize("chunk", fast([1, 4]))
def test_a_bad_row_saves_first_and_may_be_skipped_on_resuming(files, tmp_path, chunk):
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    lines.insert(96, "too,few\n")
    (tmp_path / "b.csv").write_text("".join(lines))
    config = StreamConfig(
        str(tmp_path / "b.csv"), target="class", chunk=chunk, look_ahead=50, **TINY
    )
    with pytest.raises(ValueError, match="line 97: 2 fields"):
        follow(config, tmp_path / "cut", show_progress=False)
    assert (
        ft.read_extra(tmp_path / "cut" / "checkpoint.safetensors")["position"][0] == 95 - 95 % chunk
    )
    skipping = dataclasses.replace(config, bad_rows="skip")
    follow(skipping, tmp_path / "cut", resume=True, show_progress=False)
    follow(skipping, tmp_path / "whole", show_progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.full
@pytest.mark.parametrize(("column", "chunk"), fast([("x", 4), ("x", 1), ("z", 1)]))
def test_an_outlier_that_stops_leaves_the_state_before_it(tmp_path, column, chunk):
    rows = [f"{i % 5},{i % 7},{(i * 5) % 11}" for i in range(120)]
    bad = {"x": "1,1e9,3", "z": "1,2,1e9"}[column]
    config = StreamConfig(
        str(tmp_path / "a.csv"), target="z", task="regression", outliers="stop", chunk=chunk, **TINY
    )
    (tmp_path / "a.csv").write_text("\n".join(["w,x,z", *rows[:82], bad, *rows[82:]]) + "\n")
    with pytest.raises(ValueError, match=r"1e\+09"):
        follow(config, tmp_path / "cut", show_progress=False)
    (tmp_path / "a.csv").write_text("\n".join(["w,x,z", *rows]) + "\n")
    follow(config, tmp_path / "cut", resume=True, show_progress=False)
    follow(config, tmp_path / "whole", show_progress=False)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("file", fast(["a.csv", "a.parquet"]))
def test_other_columns_are_refused_with_the_difference(files, tmp_path, file):
    run, path = tmp_path / "run", tmp_path / file
    path.write_bytes((files / file).read_bytes())
    config = StreamConfig(str(path), target="class", **TINY)
    follow(config, run, rows=100, show_progress=False)
    before = (run / "checkpoint.safetensors").read_bytes()
    rows = [
        {("shade" if name == "color" else name): value for name, value in row.items()}
        for row in table()
    ]
    if file == "a.csv":
        path.write_text(
            "\n".join([",".join(rows[0]), *(",".join(row.values()) for row in rows)]) + "\n"
        )
    else:
        parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    with pytest.raises(ReplacedError, match="are not those that were read.*original file.*new run"):
        follow(config, run, resume=True, show_progress=False)
    with pytest.raises(
        SourceError, match="lacks 'color', and 'shade'.*give it the columns of the run"
    ):
        predictions(run, str(path))
    assert (run / "checkpoint.safetensors").read_bytes() == before
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n')
    with pytest.raises(SourceError, match="lacks 'time', 'x', 'color', 'z', and 'a' is new"):
        predictions(run, str(tmp_path / "b.jsonl"))
    # Objects may leave out what is missing, the target, too.
    (tmp_path / "b.jsonl").write_text('{"x": 1}\n')
    assert len(list(predictions(run, str(tmp_path / "b.jsonl"))[1])) == 1


@pytest.mark.full
@pytest.mark.parametrize("delay", fast([2, 0]))
def test_predicting_changes_nothing_and_sees_each_row_and_the_labels_that_have_come(
    files, tmp_path, delay
):
    config = StreamConfig(str(files / "a.csv"), target="class", delay=delay, **TINY)
    follow(config, tmp_path / "run", rows=300, show_progress=False)
    before = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    lines = (files / "a.csv").read_text().splitlines()

    def predicted(change=None, by=""):
        """Return the predictions for ten rows, one of which has a field changed."""
        rows = [line.split(",") for line in lines[:11]]
        if change is not None:
            rows[change][rows[0].index(by)] = {"x": "2.5", "class": "down"}[by]
        (tmp_path / "rows.csv").write_text("\n".join(map(",".join, rows)) + "\n")
        names, rows = predictions(tmp_path / "run", str(tmp_path / "rows.csv"))
        return [names, *([row[name] for name in names] for row in rows)]

    def first_difference(other):
        return next(row for row, (a, b) in enumerate(zip(found, other, strict=True)) if a != b)

    names, *answers = found = predicted()
    assert names == ["row", "class", "probability"] and [row for row, *_ in answers] == list(
        range(1, 11)
    )
    assert {answer for _, answer, _ in answers} <= {"up", "down"} and all(
        0 <= p <= 1 for *_, p in answers
    )
    assert lines[4].split(",")[3] == "up"
    # A row is seen by its own prediction, its label by those of the rows behind it, `delay` later.
    assert first_difference(predicted(4, "x")) == 4
    assert first_difference(predicted(4, "class")) == 5 + delay
    assert predicted() == found
    assert (tmp_path / "run" / "checkpoint.safetensors").read_bytes() == before


@pytest.mark.full
def test_a_network_that_diverges_says_so(files, tmp_path):
    model = ModelConfig(**SIZES, learning_rate=1e38, clip=None)
    config = StreamConfig(str(files / "a.csv"), target="z", **TINY | {"model": model})
    with pytest.raises(DivergenceError, match=r"\d\d steps in a row.*--learning-rate \(now 1e\+38"):
        follow(config, tmp_path / "bad", show_progress=False)


# What a shell or nohup may have set for everything that it starts is undone: signals that are
# ignored stay ignored. Not with `preexec_fn`, which forks a process in which JAX's threads run.
HEAR_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture(scope="module")
def start(files, tmp_path_factory):
    """Run the command in the folder of the files, every program compiled only once."""
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }

    def start(*arguments, **options):
        command = [sys.executable, "-m", "foretrace", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.PIPE}
        hearing = [sys.executable, "-c", HEAR_SIGNALS, *command]
        return subprocess.Popen(hearing, cwd=files, env=environment, text=True, **(pipes | options))

    return start


OPTIONS = ["--target=class", "--size=tiny", "--log-every=50", "--checkpoint-every=70"]


PATIENCE = 500
"""Seconds that a process may take: it compiles, and other tests and programs may share its core."""


def finish(process, text=None):
    out, err = process.communicate(text, timeout=PATIENCE)
    return process.returncode, out, err


def wait_for_checkpoint(run_dir, process):
    """Wait for the next one with more rows; return its rows."""
    path = run_dir / "checkpoint.safetensors"

    def rows():
        return ft.read_extra(path)["position"][0] if path.exists() else 0

    before, end = rows(), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if (now := rows()) > before:
            return now
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    raise AssertionError("no checkpoint")


@pytest.mark.program
def test_kill_9_loses_nothing_but_rows_since_the_checkpoint(start, files):
    with open(files / "long.csv", "w") as file:
        lines = (files / "a.csv").read_text().splitlines(keepends=True)
        file.writelines(lines[:1] + lines[1:] * 20)
    assert finish(start("stream", "long.csv", "--run-dir=whole", *OPTIONS))[0] == 0
    process = start("stream", "long.csv", "--run-dir=killed", *OPTIONS)
    for i, number in enumerate((signal.SIGKILL, signal.SIGTERM, signal.SIGKILL, signal.SIGINT)):
        wait_for_checkpoint(files / "killed", process)
        time.sleep(0.3 * i)
        process.send_signal(number)
        code, out, err = finish(process)
        assert code == (-9 if number == signal.SIGKILL else 130), err
        if code == 130:
            assert "foretrace resume killed" in out
        process = start("resume", "killed")
    code, out, err = finish(process)
    assert code == 0, err
    assert_same_run(files / "whole", files / "killed")
    assert "the most frequent class" in out and (files / "killed" / "curves.png").stat().st_size > 0


@pytest.mark.program
def test_a_pipe_is_learned_as_its_rows_come_and_stops_while_it_waits(start, files):
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    process = start("stream", "-", "--format=csv", "--run-dir=pipe", "--look-ahead=20", *OPTIONS)
    process.stdin.write("".join(lines[:101]))
    process.stdin.flush()
    wait_for_checkpoint(files / "pipe", process)  # row 70, although no end is in sight
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    code, out, err = finish(process)
    assert code == 130, err
    assert "stopped after row 100" in out
    process = start("resume", "pipe")
    code, out, err = finish(process, "".join(lines[101:]))
    assert code == 0, err
    assert finish(start("stream", "a.csv", "--run-dir=file", "--look-ahead=20", *OPTIONS))[0] == 0
    one, two = state(files / "pipe"), state(files / "file")
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)
    _, out, err = finish(
        start("predict", "pipe", "-", "--format=csv", "--rows=2"), "".join(lines[:5])
    )
    assert out.splitlines()[0] == "row,class,probability" and len(out.splitlines()) == 3, err


@pytest.mark.program
def test_kill_9_of_a_pipe_loses_no_row_that_came_a_while_ago(start, files):
    lines = (files / "a.csv").read_text().splitlines(keepends=True)
    options = ["--look-ahead=20", "--checkpoint-seconds=0.1", *OPTIONS[:3]]
    process = start("stream", "-", "--format=csv", "--run-dir=kill-9", *options)
    process.stdin.write("".join(lines[:41]))
    process.stdin.flush()
    while wait_for_checkpoint(files / "kill-9", process) < 40:  # no more rows come
        pass
    process.kill()
    assert finish(process)[0] == -9
    process = start("resume", "kill-9")
    code, _, err = finish(process, "".join(lines[41:]))
    assert code == 0, err
    assert finish(start("stream", "a.csv", "--run-dir=not-killed", *options))[0] == 0
    one, two = state(files / "kill-9"), state(files / "not-killed")
    for name in one:
        np.testing.assert_array_equal(one[name], two[name], err_msg=name)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("stream", "STR"),
        ("stream a.csv", "--target COLUMN"),
        (
            "stream a.csv --target clas",
            "no column 'clas', only time, x, color, class, z; did you mean 'class'",
        ),
        ("stream a.csv --target class --time colour", "no column 'colour'"),
        ("stream a.csv --target class --time x --numeric x", "'x' is named twice"),
        (
            "stream a.csv --target class --horizon 2 --task classification",
            "--horizon predicts numbers",
        ),
        ("stream a.txt --target x", "next character"),
        ("stream a.csv --target class --chunk 0", "chunk=0"),
        ("stream a.csv --target class --delay -1", "delay=-1"),
        ("stream a.csv --target class --rule spatial(depth=1)", "use it with ONLINE"),
        ("stream a.csv --target z --delay 100000000", "delay=100000000"),
        ("stream absent.csv --target class", "absent.csv cannot be read: No such file"),
        ("stream - --target class", "--format csv"),
        ("stream bad.csv --target b", "bad.csv, line 3: 3 fields"),
        ("stream header.csv --target b", "header.csv has no rows"),
        ("stream a.csv --target class --rule other", "other"),
        ("stream a.csv --target class --size tiny --cell lstm", "elementwise-lstm"),
        (
            "stream a.csv --target class --cell gru",
            "cell=gru is an option of the network, which takes no part",
        ),
        ("predict absent a.csv", "no run at absent"),
    ],
)
def test_bad_input_is_one_clear_message(capsys, files, tmp_path, monkeypatch, arguments, message):
    for name in ("a.csv", "a.txt"):
        (tmp_path / name).write_text((files / name).read_text())
    (tmp_path / "bad.csv").write_text("a,b\n1,2\n1,2,3\n")
    (tmp_path / "header.csv").write_text("a,b\n")
    monkeypatch.chdir(tmp_path)
    there = sorted(path.name for path in tmp_path.iterdir())
    try:
        code = cli.main(arguments.split())
    except SystemExit as stop:
        code = stop.code
    out, err = capsys.readouterr()
    assert code == 2 and message in err and "Traceback" not in err and out == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == there


def test_runs_are_not_overwritten_nor_mistaken(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), target="class", **TINY)
    follow(config, tmp_path / "run", rows=5, show_progress=False)
    with pytest.raises(RunError, match="holds a run already"):
        follow(config, tmp_path / "run", show_progress=False)
    with pytest.raises(RunError, match="seed: 0, 1"):
        other = dataclasses.replace(config, model=ModelConfig(**SIZES, seed=1))
        follow(other, tmp_path / "run", resume=True)
    with pytest.raises(RunError, match="a run of another command"):
        read_config(tmp_path / "run")


def test_one_process_at_a_time_in_a_run_directory(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), target="class", **TINY)
    (tmp_path / "run").mkdir()
    follow(config, tmp_path / "run", rows=5, show_progress=False)
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with (
        locked(tmp_path / "run"),
        pytest.raises(LockedError, match="in use by another foretrace process"),
    ):
        follow(config, tmp_path / "run", resume=True, show_progress=False)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before
    assert (
        follow(config, tmp_path / "run", resume=True, rows=6, show_progress=False).position.row == 6
    )


@pytest.mark.full
def test_tensorboard_gets_the_numbers(files, tmp_path):
    config = StreamConfig(str(files / "a.csv"), target="class", **TINY)
    follow(config, tmp_path / "run", rows=60, tensorboard=True, show_progress=False)
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    assert b"total/log_loss" in events.read_bytes() and b"largest_modulus" in events.read_bytes()
