"""Every hostile source ends in one message and exit code 2, or is read as finite numbers."""

import re

import hostile
import numpy as np
import pytest

from foretrace.cli import _main as cli
from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.slots import SlotTable
from foretrace.stream.read.source import Source
from foretrace.stream.read.streams import Streams
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.plan import _target, make_plan

REFUSED = [name for name, case in hostile.CASES.items() if isinstance(case.outcome, str)]
READ = [name for name, case in hostile.CASES.items() if isinstance(case.outcome, int)]


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused_in_one_line_and_nothing_is_written(tmp_path, capsys, name):
    case = hostile.CASES[name]
    (tmp_path / name).write_bytes(case.data)
    target = [] if name.endswith(".txt") else ["--target", "y"]
    arguments = ["stream", str(tmp_path / name), *target, "--size", "small", *case.options]
    assert cli.main([*arguments, "--run-dir", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("foretrace: error: ")
    assert err.count("\n") == 1 and len(err) < 1000
    assert re.search(case.outcome, err), err
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", err)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", READ)
def test_it_is_read_as_finite_numbers(tmp_path, name):
    case = hostile.CASES[name]
    (tmp_path / name).write_bytes(case.data)
    names = [option.removeprefix("--").replace("-", "_") for option in case.options[::2]]
    options = dict(zip(names, case.options[1::2], strict=True))
    config = StreamConfig(str(tmp_path / name), target="y", **options)
    source = Source(config.source, encoding=config.encoding, bad_rows=config.bad_rows)
    found = list(source.rows())
    assert len(found) == case.outcome
    plan = make_plan(config, source, [row for row, _ in found])
    streams = Streams(Encoder(plan.columns), _target(config, plan), SlotTable(1))
    for row, _ in found:
        came = streams.push(None, row, row.get("y"))
        assert not np.isinf([*came.x, came.y]).any()
        assert not np.isnan(came.x[came.is_number == 0]).any()
    assert list(source.rows(found[0][1])) == found[1:]
