"""Forged checkpoints and configurations with a right digest: one error, no allocation.

A real file is taken, one value of it is replaced or removed at a drawn place, and the digest is
computed anew.
"""

import copy
import dataclasses
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

import foretrace as ft
from foretrace._runs.checkpoint import _DIGEST, _EXTRA, _digest, restoring
from foretrace._runs.directory import RunError
from foretrace._runs.machine import peak_bytes
from foretrace.cli import _main as cli
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.predict import predictions
from foretrace.stream.runs.run import follow
from foretrace.stream.runs.saved import copy_state, opened

BASELINES = ModelConfig(experts=("baselines",))
DEEP = "a text in whose place a list of 100,000 lists comes"
VALUES = [None, True, -1, 0, 1, 2, 10**9, 10**30, 1e308, float("nan"), "", "x", DEEP]
VALUES += [[], [[]], {}, {"a": 1}]
MOST_BYTES = 5e8


STREAM = StreamConfig("a.csv", target="y", model=BASELINES, log_every=20, checkpoint_every=20)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of a finished run and of the file of its stream, the present one."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [f"{i % 3},{'ab'[i % 2]},{i % 2}\n" for i in range(40)]
    (folder / "a.csv").write_text("".join(["x,c,y\n", *rows]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        follow(STREAM, folder / "run", show_progress=False)
        yield folder


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


def forge(run, part, place, value):
    """Put another value at a place of the configuration, or of a part of the checkpoint."""
    if part == "config.json":
        text = (run / part).read_text()
        new = value if place is None else text_of(forged(json.loads(text), place, value))
        (run / part).write_text(new)
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


def open_forged(runs, folder, part, place, value):
    """Open a run with another value at a place."""
    run = shutil.copytree(runs / "run", folder / "run")
    forge(run, part, place, value)
    next(predictions(run, "a.csv")[1])


@given(data=st.data())
def test_a_value_that_is_forged_is_one_error_or_none(runs, tmp_path_factory, data):
    header, _, extra = read_raw(runs / "run" / "checkpoint.safetensors")
    part = data.draw(st.sampled_from(["header", "extra", "extra", "extra"]))
    place = data.draw(st.sampled_from(list(places({"header": header, "extra": extra}[part]))))
    value = data.draw(st.sampled_from([*VALUES, *([places] if place else [])]))
    folder = tmp_path_factory.mktemp("forged")
    with nothing_but(ft.CheckpointError, RunError):
        open_forged(runs, folder, part, place, value)
    with nothing_but():
        assert cli.main(["check", str(folder / "run")]) in (0, 1)


ENCODER, TYPE = ("intake", "streams", "encoder"), {"type": "StreamConfig"}
MEMBER = ("intake", "streams", "table", "members", 0, 1)
FORGED = {
    "header": {
        (): (DEEP,),
        ("format",): (DEEP,),
        ("prng",): (["key"], {"num_labels": "absent"}),
    },
    "extra": {
        (): ([],),
        ("config",): (places,),
        ("plan", "classes"): (10**9,),
        ("plan", "columns"): ([["x", "colour"]], [["x"] * 5]),
        ("intake",): ({},),
        (*ENCODER, "columns", "x", 1): (10**9,),
        (*ENCODER, "words", "c"): ({"a": 1, "b": 1}, {"a": 10**9, "b": 1}),
        (*ENCODER, "counts"): ({"missing": "x"},),
        ("intake", "streams", "target", "classes"): ([1, 1],),
        (*MEMBER, "pending"): (["1", "0"],),
        (*MEMBER, "num_rows"): (1.5,),
        (*MEMBER, "slot"): (1,),
        ("monitors",): ({"rows": "x"},),
        ("position",): ([0, 0, -5],),
        ("step",): (places,),
    },
    "config.json": {
        None: ("{",),
        (): (DEEP, {"config": []}, {"config": {"type": 3}}),
        ("config",): tuple(TYPE | {"delay": value} for value in (DEEP, 10**30, "x")),
    },
}
"""Values that are refused, by file or part of the checkpoint, and place."""


@pytest.mark.parametrize(
    ("part", "place", "value"),
    [
        (part, place, value)
        for part, table in FORGED.items()
        for place, values in table.items()
        for value in values
    ],
)
def test_it_is_refused(runs, tmp_path, part, place, value):
    refused = pytest.raises((ft.CheckpointError, RunError))
    with nothing_but(), refused as caught:
        open_forged(runs, tmp_path, part, place, value)
    assert len(str(caught.value)) < 2000


INTAKES = {
    "members": {"member": "c", "members": 3, "delay": 1, "task": "regression"},
    "members ahead": {"member": "c", "members": 3, "horizon": 2, "delay": 1},
    "chunks": {"model": dataclasses.replace(BASELINES, size="fast"), "delay": 4, "classes": 16},
}


@functools.cache
def learned(file, name):
    """Return an intake, its state and its saved form, after the rows of a file."""
    options = {"model": BASELINES, "log_every": 20, "checkpoint_every": 20} | INTAKES[name]
    config = StreamConfig(file, target="y", **options)
    run = follow(config, f"{file}-{name}", show_progress=False).run
    _, _, intake, state = opened(run.path)
    return intake, state, ft.read_extra(run.checkpoint)["intake"]


@pytest.mark.parametrize("name", fast(INTAKES))
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
