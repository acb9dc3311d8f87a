"""Run directories cut, edited or linked: `foretrace check` reports it, `resume` notices."""

import json

import pytest

from foretrace._runs.files import LinkError
from foretrace.cli import _main as cli
from foretrace.stream.runs import figure as _figure
from foretrace.stream.runs.run import follow

FILES = CHECKPOINT, CONFIG, RECORD = ("checkpoint.safetensors", "config.json", "metrics.jsonl")


def edited(path, **changes):
    data = json.loads(path.read_text())
    data["config"] |= changes
    path.write_text(json.dumps(data))


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flipped(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


DAMAGES = [
    (RECORD, lambda path: None, "whole, 4 lines"),
    (CHECKPOINT, lambda path: cut(path, -100), "is not a complete"),
    (CHECKPOINT, lambda path: flipped(path, b'"position"', b'"positiom"'), "match their digest"),
    (CONFIG, lambda path: edited(path, horizon=0, delay=1), "differ in delay: 1, 0"),
    (CONFIG, lambda path: edited(path, other=3), "is not a setting of StreamConfig"),
    (RECORD, lambda path: cut(path, 0), "is cut: it has 0 bytes, but"),
    (RECORD, lambda path: flipped(path, b'"step": 20', b'"step": 21'), "was changed"),
    (RECORD, lambda path: path.unlink(), "is missing"),
    (RECORD, lambda path: flipped(path, b"{", b"["), "line 1 is not a line of metrics"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGES)
def test_damage_is_found_where_it_is(run, capsys, name, damage, message):
    damage(run / name)
    code, lines = cli.main(["check", str(run)]), capsys.readouterr().out.splitlines()
    found = dict(line.removeprefix(f"{run}/").split(": ", 1) for line in lines if str(run) in line)
    assert code == ("whole" not in message) and message in found[name] and tuple(found) == FILES
    assert all(state.startswith("whole") for other, state in found.items() if other != name)


@pytest.mark.parametrize("name", [RECORD, ".lock", CHECKPOINT, "curves.png"])
def test_nothing_is_written_through_a_symbolic_link(config, run, tmp_path, name):
    """The files that grow refuse it, the others take its place."""
    mine, is_refused = tmp_path / "mine", name in (RECORD, ".lock")
    before = (run / CHECKPOINT).read_bytes() if name == CHECKPOINT else b""
    mine.write_bytes(before)
    (run / name).unlink(missing_ok=True)
    (run / name).symlink_to(mine)
    if is_refused:
        words = f"{name} is a symbolic link and would be written through"
        with pytest.raises(LinkError, match=words):
            follow(config, run, resume=True, show_progress=False)
    else:
        follow(config, run, resume=True, show_progress=False)
        _figure.figure(run)
    assert mine.read_bytes() == before and (run / name).is_symlink() == is_refused
