"""What a run shows on standard error of how far it has come."""

import pytest

from foretrace._runs import progress


@pytest.mark.parametrize("total", [40, None])
def test_lines_say_the_newest_step(capsys, monkeypatch, total):
    monkeypatch.setattr(progress, "_SECONDS_BETWEEN_LINES", 0.0)
    with progress.ProgressBar(True, total) as bar:
        for _ in range(2):
            bar.compiling()
        for step in (1, 20, 40):
            bar.reach(step, f"loss {step / 10}")
        bar.say("warning: of the data")
    lines = capsys.readouterr().err.splitlines()
    shown = [line for line in lines if "loss" in line]
    assert lines.count("compiling …") == lines.count("warning: of the data") == 1
    for step in (1, 20, 40):
        begin = "" if total is None else f"step {step}/40, "
        assert any(line.startswith(f"{begin}loss {step / 10}") for line in shown)
