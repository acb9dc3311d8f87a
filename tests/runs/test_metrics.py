"""The record of a run survives numbers that are not finite, torn lines and being resumed."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

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
        log.write("a", 1, loss=1 / 3, name="x", flag=True, none=np.float32("nan"))
        log.write("b", 1, layers=np.array([0.5, -np.inf]), by={"w": jnp.ones(2), "v": 0.25})
        assert len(read_metrics(path)) == 2  # readable while it is written
    first, second = read_metrics(path)
    assert np.isnan(first.pop("none"))
    assert first == {"kind": "a", "step": 1, "loss": 1 / 3, "name": "x", "flag": True}
    by = {"w": [1.0, 1.0], "v": 0.25}
    assert second == {"kind": "b", "step": 1, "layers": [0.5, -np.inf], "by": by}
    # One line a record.
    assert json.loads(path.read_text().splitlines()[1]) == second


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


def test_nothing_is_overwritten(tmp_path):
    path = tmp_path / "metrics.jsonl"
    write(path, [1])
    with pytest.raises(FileExistsError):
        MetricsLog(path)
    assert steps_in(path) == [1]


@pytest.mark.parametrize("line", ["[1, 2]", "hello", '{"kind": "train", "step": "1"}'])
def test_a_foreign_line_is_named(tmp_path, line):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train", "step": 0}\n' + line + "\n")
    with pytest.raises(MetricsError, match="line 2"):
        read_metrics(path)
    before = path.read_bytes()
    with pytest.raises(MetricsError, match="line 2"):
        MetricsLog(path, resume_at=0)
    assert path.read_bytes() == before
