"""The record of a run survives numbers that are not finite, torn lines and being resumed."""

import json
import time

import jax.numpy as jnp
import numpy as np
import pytest

from foretrace._runs.appended import identity
from foretrace._runs.metrics import MetricsError, MetricsLog, read_metrics


def write(path, steps, **options):
    with MetricsLog(path, **options) as log:
        for step in steps:
            log.write("train", step, loss=step / 7)


def steps_in(path):
    return [record["step"] for record in read_metrics(path)]


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write("a", 1, loss=1 / 3, name="x", flag=True)
        log.write("b", 1, layers=np.array([0.5, 1.0]), by={"w": jnp.ones(2), "v": 0.25})
        assert len(read_metrics(path)) == 2  # readable while it is written
    first, second = read_metrics(path)
    assert first == {"kind": "a", "step": 1, "loss": 1 / 3, "name": "x", "flag": True}
    assert second == {
        "kind": "b",
        "step": 1,
        "layers": [0.5, 1.0],
        "by": {"w": [1.0, 1.0], "v": 0.25},
    }


def test_nan_and_infinity_come_back(tmp_path):
    path = tmp_path / "metrics.jsonl"
    with MetricsLog(path) as log:
        log.write(
            "a",
            0,
            loss=np.float32("nan"),
            layers=[1.0, float("-inf")],
            by={"w.b": np.array([np.inf, 2.0])},
        )
    (record,) = read_metrics(path)
    assert (
        np.isnan(record["loss"])
        and record["layers"] == [1.0, -np.inf]
        and record["by"] == {"w.b": [np.inf, 2.0]}
    )
    # One line a record, for whoever reads it.
    assert json.loads(path.read_text())["layers"] == [1.0, -np.inf]


def test_what_is_no_number_is_refused(tmp_path):
    with (
        MetricsLog(tmp_path / "metrics.jsonl") as log,
        pytest.raises(TypeError, match="a set cannot be recorded"),
    ):
        log.write("a", 0, loss={1.0})


def test_a_torn_last_line_is_left_out_and_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1, 2])
    whole = path.read_bytes()
    for torn in (b'{"kind": "train", "st', b'{"kind": "train", "step": 3}', b"\xff\x00"):
        path.write_bytes(whole + torn)
        assert steps_in(path) == [1, 2]
        MetricsLog(path, resume_at=2).close()
        assert path.read_bytes() == whole


def test_resuming_cuts_off_later_lines(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [0, 10, 20, 20, 30])
    whole = path.read_bytes()
    write(path, [30], resume_at=20)
    assert path.read_bytes() == whole
    write(path, [], resume_at=-1)
    assert path.read_bytes() == b""


def test_resuming_without_a_file_begins_one(tmp_path):
    write(tmp_path / "metrics.jsonl", [3], resume_at=2)
    assert steps_in(tmp_path / "metrics.jsonl") == [3]


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1])
    with pytest.raises(FileExistsError):
        MetricsLog(path)
    assert steps_in(path) == [1]


@pytest.mark.parametrize("line", ["{}", "[1, 2]", "hello", '{"kind": "train", "step": "1"}'])
def test_a_foreign_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train", "step": 0}\n' + line + "\n")
    with pytest.raises(MetricsError, match="line 2"):
        read_metrics(path)
    before = path.read_bytes()
    with pytest.raises(MetricsError, match="line 2"):
        MetricsLog(path, resume_at=0)
    assert path.read_bytes() == before


def test_a_file_is_not_taken_for_the_one_that_was_deleted_before_it(tmp_path):
    path, found = tmp_path / "a", set()
    for _ in range(20):  # file systems use a number again at once
        path.write_text("")
        found.add(identity(path))
        path.rename(tmp_path / "b")
        assert identity(tmp_path / "b") in found
        (tmp_path / "b").unlink()
        time.sleep(0.005)  # clocks of file systems tick some hundred times a second
    assert len(found) == 20 or any(name.endswith(":") for name in found)
