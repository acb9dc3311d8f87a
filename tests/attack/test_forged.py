"""Forged checkpoints and configurations with a right digest: one error, no allocation.

A real file is taken, one value of it is replaced or removed at a drawn place, and the digest is
computed anew.
"""

import copy
import functools
import json
import shutil
import struct
from contextlib import contextmanager, suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save_file
from tiers import fast
from trained import TRAINED

import foretrace as ft
from foretrace import experiment
from foretrace._runs.checkpoint import _DIGEST, _EXTRA, _digest, restoring
from foretrace._runs.directory import RunError
from foretrace._runs.machine import peak_bytes
from foretrace._runs.metrics import MetricsError
from foretrace.cli import _main as cli
from foretrace.rl import MemoryChain
from foretrace.rl import _run as agents
from foretrace.rl._config import RLConfig
from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import ModelConfig
from foretrace.stream._predict import predictions
from foretrace.stream._run import follow
from foretrace.stream._saved import copy_state, opened

TINY = experiment.NetworkConfig(depth=1, model_size=4, cell=experiment.LRU(state_size=3))
AGENT = RLConfig(environment=MemoryChain(2), network=TINY, steps=4, log_every=2, checkpoint_every=2)
BASELINES = ModelConfig(experts=("baselines",))
NETWORK = ModelConfig(size="small", depth=1, model_size=4, state_size=3)
DEEP = "a text in whose place a list of 100,000 lists comes"
VALUES = [None, True, -1, 0, 1, 2, 10**9, 10**30, 1e308, float("nan"), "", "x", DEEP]
VALUES += [[], [[]], {}, {"a": 1}]
MOST_BYTES = 5e8


STREAM = StreamConfig(
    "a.csv", target="y", model=NETWORK, log_every=20, checkpoint_every=20, look_ahead=40
)
RUNS = {
    "train": (experiment.train, TRAINED),
    "rl": (agents.train, AGENT),
    "stream": (follow, STREAM),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of finished runs and of the file of the stream, the present one."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [f"{i % 3},{'ab'[i % 2]},{i % 2}\n" for i in range(40)]
    (folder / "a.csv").write_text("".join(["x,c,y\n", *rows]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield folder


@functools.cache
def finished(folder, kind):
    """Return the directory of a finished run, which is made at the first call."""
    run, config = RUNS[kind]
    run(config, folder / kind, show_progress=False)
    return folder / kind


def places(value, place=()):
    """Yield the place of every value in a tree of JSON."""
    yield place
    if isinstance(value, dict | list):
        for name, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*place, name))


def forged(tree, place, value):
    """Return a tree with another value at a place, or without it if the value is `places`."""
    if not place:
        return value
    tree = copy.deepcopy(tree)
    at = tree
    for name in place[:-1]:
        at = at[name]
    if value is places:
        del at[place[-1]]
    else:
        at[place[-1]] = value
    return tree


def text_of(tree):
    return json.dumps(tree).replace(json.dumps(DEEP), "[" * 100_000 + "]" * 100_000)


def read_raw(path):
    with safe_open(path, framework="np") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    header = json.loads(arrays[_EXTRA].tobytes())
    return header, arrays, header.pop("extra")


@contextmanager
def nothing_but(*errors):
    """Let some errors pass, and no other; and check that little memory was asked for."""
    before = peak_bytes()
    with suppress(errors):
        yield
    assert peak_bytes() - before < MOST_BYTES


def opened_as(kind, part, run):
    """Open a run by what reads a part of it."""
    follow_on, config = RUNS[kind]
    if part == "config.json":
        experiment.read_config(run)
    elif kind == "stream":
        next(predictions(run, "a.csv")[1])
    else:
        follow_on(config, run, resume=True, show_progress=False)  # it is finished


def forge(run, part, place, value):
    """Put another value at a place of a file of a run, or of a part of its checkpoint."""
    if part.endswith((".json", ".jsonl")):
        text = (run / part).read_text()
        lines = text.splitlines() if part == "metrics.jsonl" else [text]
        for number, line in enumerate(lines):
            if not place or place[0] in json.loads(line):
                new = value if place is None else text_of(forged(json.loads(line), place, value))
                lines[number] = new
        (run / part).write_text("".join(f"{line}\n" for line in lines))
        return
    path = run / "checkpoint.safetensors"
    header, arrays, extra = read_raw(path)
    if part == "extra":
        extra = forged(extra, place, value)
    else:
        header = forged(header, place, value)
    text = text_of(header | {"extra": extra} if isinstance(header, dict) else header)
    arrays[_EXTRA] = np.frombuffer(text.encode(), np.uint8)
    save_file(arrays, path, metadata={_DIGEST: _digest(arrays)})


def open_forged(runs, folder, kind, part, place, value):
    """Open a run with another value at a place."""
    run = shutil.copytree(finished(runs, kind), folder / "run")
    forge(run, part, place, value)
    opened_as(kind, part, run)


@pytest.mark.parametrize("kind", fast(["stream", "train", "rl"]))
@given(data=st.data())
def test_a_value_that_is_forged_is_one_error_or_none(runs, tmp_path_factory, kind, data):
    header, _, extra = read_raw(finished(runs, kind) / "checkpoint.safetensors")
    part = data.draw(st.sampled_from(["header", "extra", "extra", "extra"]))
    place = data.draw(st.sampled_from(list(places({"header": header, "extra": extra}[part]))))
    value = data.draw(st.sampled_from([*VALUES, *([places] if place else [])]))
    folder = tmp_path_factory.mktemp("forged")
    with nothing_but(ft.CheckpointError, RunError):
        open_forged(runs, folder, kind, part, place, value)
    with nothing_but():
        assert cli.main(["check", str(folder / "run")]) in (0, 1)


ENCODER, TYPE = ("intake", "streams", "encoder"), {"type": "Config"}
MEMBER = ("intake", "streams", "table", "members", 0, 1)
FORGED = {
    ("stream", "header"): {
        (): (DEEP, []),
        ("format",): (DEEP,),
        ("prng",): ({"key": "absent"}, {}),
    },
    ("train", "header"): {
        ("prng",): (["key"], {"key": "threefry2x32", "step": "threefry2x32"}),
    },
    ("stream", "extra"): {
        (): (DEEP, []),
        ("config",): (places, DEEP),
        ("plan", "classes"): (10**9, -1),
        ("plan", "columns"): ([["x", "colour"]], [["x"] * 5]),
        ("plan",): (places,),
        ("intake",): ([], {}),
        (*ENCODER, "columns", "x", 1): (10**9,),
        (*ENCODER, "words", "c"): ({"a": 1, "b": 1}, {"a": 10**9, "b": 1}),
        (*ENCODER, "counts"): ({"missing": "x"},),
        ("intake", "streams", "target", "classes"): ([1, 1],),
        (*MEMBER, "pending"): (["1", "0"],),
        (*MEMBER, "num_rows"): (1.5,),
        (*MEMBER, "slot"): (1,),
        ("monitors",): ({"rows": "x"},),
        ("position",): ([0, 0, -5],),
    },
    ("train", "extra"): {
        ("step",): (places, 10**30, 3.5),
        ("window",): ([[1.0]],),
        ("level",): ([1, 2],),
        ("record",): ([1],),
        ("other",): (1,),
        ("config", "optimizer", "clip"): (10**400,),
    },
    ("rl", "extra"): {("step",): (places,), ("record",): ([1],)},
    ("train", "config.json"): {
        None: ("{", "null"),
        (): ([], DEEP, {"config": []}, {"config": {"type": 3}}),
        ("config",): tuple(TYPE | {"steps": value} for value in (DEEP, 10**30, "x")),
        ("surroundings", "packages"): (3, [1], {"jax": 3}),
    },
    ("train", "metrics.jsonl"): {
        (): (DEEP,),
        ("loss",): (places,),
        ("seconds",): ("x",),
    },
}
"""Values that are refused, by kind of run, file or part of its checkpoint, and place."""


@pytest.mark.parametrize(
    ("kind", "part", "place", "value"),
    [
        pytest.param(*of, place, value, marks=() if "stream" in of else pytest.mark.full)
        for of, table in FORGED.items()
        for place, values in table.items()
        for value in values
    ],
)
def test_it_is_refused(runs, tmp_path, kind, part, place, value):
    refused = pytest.raises((ft.CheckpointError, RunError, MetricsError))
    with nothing_but(), refused as caught:
        open_forged(runs, tmp_path, kind, part, place, value)
    assert len(str(caught.value)) < 2000


INTAKES = {
    "classes, late, in chunks": {"chunk": 3, "delay": 4},
    "members ahead": {"member": "c", "members": 3, "horizon": 2, "delay": 1},
    "numbers, late": {"task": "regression", "delay": 2},
    "network": {"chunk": 3, "delay": 4, "model": NETWORK},
}


@functools.cache
def learned(file, name):
    """Return an intake, its state and its saved form, after the rows of a file."""
    options = {"model": BASELINES, "log_every": 20, "checkpoint_every": 20} | INTAKES[name]
    config = StreamConfig(file, target="y", **options)
    run = follow(config, f"{file}-{name}", show_progress=False).run
    _, _, intake, state = opened(run.path)
    return intake, state, ft.read_extra(run.checkpoint)["intake"]


@pytest.mark.parametrize("name", fast(INTAKES, 2))
@given(value=st.sampled_from([value for value in VALUES if value != DEEP] + [[[[[]]]], places]))
def test_what_an_intake_restores_can_be_learned_from(runs, name, value):
    """Each saved value is replaced in turn: it is refused, or no row raises an error."""
    intake, state, saved = learned(str(runs / "a.csv"), name)
    rows = [{"x": "1", "c": who, "y": "1"} for who in "aab"]
    for place in [place for place in places(saved) if place or value is not places]:
        bad = json.loads(json.dumps(forged(saved, place, value)))
        try:
            with restoring("file"):
                intake.restore(bad)
        except ft.CheckpointError:
            continue
        after = copy_state(state)
        for row in rows:
            after, _ = intake.learn(after, [(row, row["y"])])
        intake.restore(bad)
        intake.advance(after, rows[0], "1")


@pytest.mark.parametrize(("name", "size"), [("BF16", 8), ("F8_E4M3", 4)])
def test_arrays_of_types_that_numpy_does_not_have_are_refused(tmp_path, name, size):
    header = {"a": {"dtype": name, "shape": [4], "data_offsets": [0, size]}}
    text = json.dumps(header | {"__metadata__": {_DIGEST: "{}"}}).encode()
    (tmp_path / name).write_bytes(struct.pack("<Q", len(text)) + text + bytes(size))
    with pytest.raises(ft.CheckpointError):
        ft.read_extra(tmp_path / name)


@pytest.mark.full
@pytest.mark.parametrize("command", ["align {}", "export {} --out {}/graph"])
def test_a_configuration_of_a_huge_network_allocates_nothing(runs, tmp_path, capsys, command):
    run = shutil.copytree(finished(runs, "train"), tmp_path / "run")
    for size in (10**7, 10**30):
        forge(run, "config.json", ("config", "network", "model_size"), size)
        with nothing_but():
            assert cli.main(command.format(run, tmp_path).split()) in (1, 2)
        assert "unexpected" not in capsys.readouterr().err
