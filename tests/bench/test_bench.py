"""`foretrace bench`: its measurements add up, and its record and tables hold them."""

import json
import time

import pytest

from foretrace._runs.directory import RunError
from foretrace.bench import _run as bench
from foretrace.bench import _timing
from foretrace.bench._report import markdown
from foretrace.bench._timing import Shape, operations, products, ratio, timed
from foretrace.cli import _main as cli

pytestmark = pytest.mark.usefixtures("default_promotion")


@pytest.fixture
def tiny(monkeypatch):
    """All shapes so small that only compilation takes time."""
    for name in _timing.SHAPES:
        monkeypatch.setitem(_timing.SHAPES, name, Shape(2, 4, 2, 3, 2, 3))


def test_products_are_those_of_the_step():
    # One layer has B (H to 2N), C (2N to H) and the gated unit (H to 2H): counted by hand for 3
    # rows.
    shape = Shape(batch=1, length=3, state=2, model=5, inputs=7, outputs=11)
    layer = 5 * 4 + 4 * 5 + 5 * 10
    forward = 4 * layer + 7 * 5 + 5 * 11
    backward = 2 * 4 * layer + 7 * 5 + 2 * 5 * 11
    assert operations(products(shape)) == 2 * 3 * (forward + backward)


def test_calls_are_timed_in_turn_and_ratios_are_of_rounds():
    order = []
    calls = {
        name: lambda name=name: (order.append(name), time.sleep(0.002 * (name == "slow")))
        for name in ("slow", "b")
    }
    seconds = timed(calls, 3)
    assert order == ["slow", "b"] + ["slow", "b"] * 3
    assert [len(found) for found in seconds.values()] == [3, 3]
    assert ratio(seconds, "slow", "b") > 1


@pytest.mark.program
def test_a_measurement_and_its_record(tiny, tmp_path, capsys):
    out = tmp_path / "bench"
    arguments = "--shapes copy --rounds 2 --chunks 1 4 --streams 2 --lengths 64 1024".split()
    code = cli.main(
        ["bench", "--parts", "whole", "streaming", "memory", *arguments, "--out", str(out)]
    )
    assert code == 0
    record = json.loads((out / "bench.json").read_text())
    whole = {row["rule"]: row for row in record["parts"]["whole"]}
    assert set(whole) == {"online", "BPTT", "TRUNCATED", "SPATIAL"}
    assert whole["BPTT"]["time_over_bptt"] == whole["BPTT"]["memory_over_bptt"] == 1
    assert all(row["ms"] > 0 and row["share_of_floor"] > 0 for row in whole.values())
    assert [row["chunk"] for row in record["parts"]["streaming"]] == [1, 4]
    for row in record["parts"]["streaming"]:
        # 4 layers of 2 streams: 2 states, 2 sensitivities to lam and 2 x 3 to B, complex64.
        assert row["carry_kib"] == round(4 * 2 * (2 + 2 + 6) * 8 / 2**10, 1)
        assert row["learn_us"] > 0 and row["floor_us"] > 0
    memory = {row["way"]: row for row in record["parts"]["memory"]}
    assert len(memory) == 15
    for way, row in memory.items():
        short, long = row["T=64_mib"], row["T=1024_mib"]
        if "segment" not in way:
            assert (long > 4 * short) if "whole" in way else (long == short), row
    assert (
        memory["BPTT, in segments of 512"]["T=1024_mib"]
        < memory["BPTT, whole sequences"]["T=1024_mib"]
    )
    assert (out / "bench.md").read_text() == markdown(record)
    assert "| copy | online |" in capsys.readouterr().out
    assert cli.main(["bench", "--out", str(out)]) == 2
    assert "holds a measurement already" in capsys.readouterr().err
    assert json.loads((out / "bench.json").read_text()) == record


def test_bad_input_names_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match="rounds=0 must be at least 1"):
        bench.run(tmp_path, rounds=0)
    with pytest.raises(ValueError, match="chunks=-1"):
        bench.run(tmp_path, chunks=(1, -1))
    with pytest.raises(ValueError, match="unknown part 'speed'"):
        bench.run(tmp_path, parts=["speed"])
    with pytest.raises(ValueError, match="unknown shape 'huge'"):
        bench.run(tmp_path, shapes=["huge"])
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the folder"):
        bench.run(tmp_path / "file" / "below", parts=[])
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    assert "scifar" not in bench._shapes_for("cpu")
