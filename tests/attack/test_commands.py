"""Commands that are stopped, cut off or fail: exit code, message, remaining files."""

import dataclasses
import sys

import pytest

from foretrace.cli import _main as cli
from foretrace.cli import _stream as commands
from foretrace.cli._options import Stream
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.run import follow


def test_predictions_to_a_file_are_whole_or_absent(run, tmp_path, capsys):
    """What a message about a row advises is an option of the command."""
    out, there = tmp_path / "out.csv", {"b.csv", "run"}
    arguments = ["predict", str(run), str(tmp_path / "b.csv"), "--out", str(out)]
    assert cli.main(arguments) == 2
    for text in ("", "other\n1\n", "x;y\n\xe4;2\n", "x,y\n1,2\n2,1\n3\n4,1\n"):
        (tmp_path / "b.csv").write_bytes(text.encode("latin-1"))
        assert cli.main(arguments) == 2
        assert {path.name for path in tmp_path.iterdir()} == there
    assert "line 4: 1 fields" in capsys.readouterr().err
    assert cli.main([*arguments, "--bad-rows", "skip"]) == 0
    assert "b.csv: rows that could not be read and were skipped: 1" in capsys.readouterr().err
    assert [line.split(",")[0] for line in out.read_text().splitlines()] == ["row", "1", "2", "3"]
    assert {path.name for path in tmp_path.iterdir()} == {*there, "out.csv"}
    assert cli.main(arguments) == 1
    assert "out.csv exists already; choose another" in capsys.readouterr().err
    (tmp_path / "b.csv").write_bytes("x;y\n\xe4;2\n".encode("latin-1"))
    assert cli.main([*arguments[:3], "--delimiter", ";", "--encoding", "latin-1"]) == 0


@pytest.mark.parametrize("is_terminal", [False, True])
def test_a_file_gets_labels_as_they_are_and_a_terminal_no_escape_sequences(
    config, tmp_path, capsys, monkeypatch, is_terminal
):
    (tmp_path / "a.csv").write_text("x,y\n" + "1,a\x1b[2Jb\n" * 30)
    config = dataclasses.replace(config, source=str(tmp_path / "a.csv"))
    follow(config, tmp_path / "run", show_progress=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    assert cli.main(["predict", str(tmp_path / "run"), config.source, "--rows", "3"]) == 0
    shown = capsys.readouterr().out
    assert ("a\\x1b[2Jb" if is_terminal else "a\x1b[2Jb") in shown and shown.count("\n") == 4
    assert ("\x1b" in shown) != is_terminal


def test_the_command_that_goes_on_has_all_that_is_not_in_the_run_directory(config, run):
    plain = commands._again(Stream(config, run), run)
    assert plain == f"foretrace resume {run}"
    given = StreamConfig(**{**vars(config), "bad_rows": "skip", "log_every": 7})
    more = commands._again(Stream(given, run, resume=True, rows=99, tensorboard=True), run)
    assert more == f"{plain} --bad-rows skip --log-every 7 --rows 99 --tensorboard"
