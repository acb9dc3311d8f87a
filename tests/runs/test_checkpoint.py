"""Checkpoints are exact, atomic, and never execute anything."""

import json
import os
import pickle
import subprocess
import sys
import time
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import assert_same
from learners import make_learner
from safetensors.numpy import save_file

import foretrace as ft
from foretrace._runs.checkpoint import _digest


def chunk(seed):
    xs = np.random.default_rng(seed).normal(size=(4, 3))
    return jnp.float32(xs), jnp.float32(np.full((4, 2), seed))


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Return the file of a state before the first step."""
    path = tmp_path_factory.mktemp("checkpoints") / "state"
    ft.save(path, make_learner().init())
    return path


def test_a_resumed_run_is_bit_identical(tmp_path):
    learner = make_learner()
    state = learner.init(jax.random.key(7))
    for i in range(3):
        state, _ = learner.step(state, *chunk(i))
    path = tmp_path / "state.safetensors"
    ft.save(path, state, extra={"row": 12})
    resumed = ft.load(path, make_learner.__wrapped__())
    assert_same(resumed, state)
    assert ft.read_extra(path) == {"row": 12}
    for i in range(3, 6):
        state, _ = learner.step(state, *chunk(i))
        resumed, _ = learner.step(resumed, *chunk(i))
    assert_same(resumed, state)


def test_keys_of_every_kind_survive(tmp_path):
    for key in (jax.random.key(7, impl="rbg"), jax.random.PRNGKey(7)):
        state = make_learner().init(key)
        ft.save(tmp_path / "state", state)
        assert ft.load(tmp_path / "state", make_learner()).key == state.key


def test_a_truncated_file_is_a_clear_error(tmp_path):
    path = tmp_path / "state"
    ft.save(path, make_learner().init())
    whole = path.read_bytes()
    for size in {0, 5, len(whole) - 1, *(len(whole) * percent // 100 for percent in range(100))}:
        path.write_bytes(whole[:size])
        with pytest.raises(ft.CheckpointError, match="not a complete"):
            ft.load(path, make_learner())


def test_a_flipped_bit_anywhere_is_found(tmp_path):
    """Every bit counts, of the header as of arrays: it holds positions and running means."""
    path = tmp_path / "state"
    arrays = {"weight": np.arange(60, dtype=np.float32), "key": jax.random.key(3)}
    ft.save(path, arrays, extra={"position": 1234567, "means": {"temperature": 21.5}, "note": "é"})
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    places = np.random.default_rng(0).integers(0, 8 * len(whole), 400)
    for place in {*places, *range(8 * 8, 8 * header, 17)}:
        data = bytearray(whole)
        data[place // 8] ^= 1 << (place % 8)
        path.write_bytes(bytes(data))
        with pytest.raises(ft.CheckpointError):
            ft.read_extra(path)
    path.write_bytes(whole)
    assert ft.read_extra(path)["position"] == 1234567


@pytest.mark.full
def test_what_is_kept_beside_the_state_may_be_large(tmp_path):
    extra = {"labels": "x" * 101_000_000}  # safetensors refuses a header of more than 100 MB
    ft.save(tmp_path / "state", {"weight": np.zeros(3)}, extra=extra)
    assert ft.read_extra(tmp_path / "state") == extra


def test_a_64_bit_checkpoint_is_not_rounded_silently(tmp_path):
    class Weights:
        def init(self):
            return {"weight": jnp.ones(3)}

    with jax.enable_x64(True):
        ft.save(tmp_path / "state", Weights().init())
    with pytest.raises(ft.CheckpointError, match=r"float64.*set jax_enable_x64"):
        ft.load(tmp_path / "state", Weights())


def test_saving_to_a_wrong_place_says_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder .*make it first"):
        ft.save(tmp_path / "absent" / "state", {"weight": np.zeros(3)})
    with pytest.raises(IsADirectoryError, match="is a folder; give the path of a file"):
        ft.save(tmp_path, {"weight": np.zeros(3)})


def test_what_a_killed_process_left_is_removed_an_hour_later(tmp_path):
    code = """if True:
        import os, sys
        from pathlib import Path
        from foretrace._runs import files
        files.os.replace = lambda *_: os.kill(os.getpid(), 9)
        files.write_atomically(Path(sys.argv[1]), b"half")
    """
    path = tmp_path / "state"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    (left,) = tmp_path.iterdir()
    at_work = tmp_path / ".state.machine-1.2.tmp"
    at_work.write_bytes(b"of a process that is alive")
    ft.save(path, {"weight": np.zeros(3)})
    assert set(tmp_path.iterdir()) == {path, left, at_work}
    os.utime(left, (time.time() - 3601,) * 2)
    ft.save(path, {"weight": np.zeros(3)})
    assert set(tmp_path.iterdir()) == {path, at_work}


class Bomb:
    def __reduce__(self):
        return os.system, ("touch exploded",)


def test_foreign_files_are_clear_errors_and_nothing_is_executed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pickle").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ft.CheckpointError, match="not a complete"):
        ft.load(tmp_path / "pickle", make_learner())
    assert not (tmp_path / "exploded").exists()
    save_file({"a": np.zeros(3)}, tmp_path / "foreign")
    with pytest.raises(ft.CheckpointError, match="not one that foretrace"):
        ft.load(tmp_path / "foreign", make_learner())
    for text, message in ((json.dumps({"format": 99}), "format 99"), ("[1", "cannot be read")):
        arrays = {"__extra__": np.frombuffer(text.encode(), np.uint8)}
        save_file(arrays, tmp_path / "other", metadata={"foretrace": _digest(arrays)})
        with pytest.raises(ft.CheckpointError, match=message):
            ft.load(tmp_path / "other", make_learner())
    with pytest.raises(FileNotFoundError, match="no checkpoint"):
        ft.load(tmp_path / "absent", make_learner())


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"outputs": 3}, "decoder"),
        ({"rule": ft.SPATIAL}, "carry.e"),
        ({"optimizer": optax.sgd(0.1)}, "opt_state"),
        ({"accumulate": True}, "grads"),
    ],
)
def test_another_learner_is_a_clear_error(saved, other, message):
    with pytest.raises(ft.CheckpointError, match=f"another learner.*{message}"):
        ft.load(saved, make_learner(**other))


def test_complex_numbers_are_named_as_such(tmp_path):
    four, five = (SimpleNamespace(init=lambda n=n: {"h": jnp.zeros(n, complex)}) for n in (4, 5))
    ft.save(tmp_path / "state", four.init())
    assert_same(ft.load(tmp_path / "state", four), four.init())
    with pytest.raises(ft.CheckpointError, match=r"h is complex64\[4\] in the file and complex64"):
        ft.load(tmp_path / "state", five)


def test_a_state_and_its_learner_are_not_exchanged(tmp_path, saved):
    learner = make_learner()
    for wrong in (learner, None, {"weight": 1.0}):
        with pytest.raises(TypeError, match=rf"{type(wrong).__name__} .*state that Learner.init"):
            ft.save(tmp_path / "state", wrong)
    assert not [*tmp_path.iterdir()]
    with pytest.raises(TypeError, match=r"LearnerState has no init, expected a learner"):
        ft.load(saved, learner.init())


def test_a_failed_save_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "state"
    ft.save(path, make_learner().init(), extra={"step": 1})
    before = path.read_bytes()
    with pytest.raises(TypeError):
        ft.save(path, make_learner().init(), extra={"step": object()})

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        ft.save(path, make_learner().init(), extra={"step": 2})
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state"]
