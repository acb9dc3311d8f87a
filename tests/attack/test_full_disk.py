"""A disk that becomes full: one message, old files stay whole, and `resume` ends undisturbed.

Every file of a run is written by `foretrace._runs.files` and `appended`. Here, from the k-th write,
sync, rename or link on, each of them fails, and a write leaves half of its bytes behind.
"""

import errno
import io
import os

import numpy as np
import pytest

from foretrace._runs import appended, files
from foretrace._runs.checkpoint import _read
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli

COMMANDS = {
    "stream": "stream a.csv --target y --size tiny --depth 1 --model-size 4 --state-size 3 "
    "--log-every 20 "
    "--checkpoint-every 30",
    "train": "train copy --task.pattern-length 3 --task.padding 1 --task.bits 2 --network.depth 1 "
    "--network.model-size 4 --state-size 3 --batch-size 2 --steps 40 --log-every 10 "
    "--evaluate-every 20 "
    "--align-every None --checkpoint-every 20 --validation-sequences 2 --final-sequences 2",
}


class Disk:
    """A disk that is full from the operation `full_at` on, counted from 0; None for never."""

    def __init__(self, full_at):
        self.full_at = full_at
        self.operations = 0

    def use(self):
        """Count an operation.

        Raises:
            OSError: the disk is full.
        """
        self.operations += 1
        if self.full_at is not None and self.operations > self.full_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def __getattr__(self, name):
        """Return an attribute of the module `os`; writes are counted."""
        found = getattr(os, name)
        if name not in ("fsync", "replace", "link"):
            return found

        def counted(*arguments):
            self.use()
            return found(*arguments)

        return counted

    def open_file(self, path, mode, **options):
        """Open a file whose writes count."""
        disk = self

        class File(io.FileIO):
            def write(self, data):
                try:
                    disk.use()
                except OSError:
                    super().write(bytes(data)[: len(data) // 2])
                    raise
                return super().write(data)

        return File(path, mode.replace("b", ""), **options)


def run(monkeypatch, name, folder, full_at=None):
    """Run a command on such a disk; return its exit code and the disk."""
    disk = Disk(full_at)
    with monkeypatch.context() as patch:
        for module in (files, appended):
            patch.setattr(module, "os", disk)
            patch.setattr(module, "open", disk.open_file, raising=False)
        begun = [*COMMANDS[name].split(), "--run-dir"]
        words = ["resume"] if (folder / "config.json").exists() else begun
        code = cli.main([*words, str(folder)])
    return code, disk


def arrays(folder):
    found = _read(folder / "checkpoint.safetensors")[1]
    return {name: array for name, array in found.items() if name != "__extra__"}


def lines(folder):
    machine = ("seconds", "rows_per_second", "resident_mib", "microseconds")
    found = read_metrics(folder / "metrics.jsonl")
    return [{key: value for key, value in line.items() if key not in machine} for line in found]


def listed(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def assert_survives(monkeypatch, capsys, tmp_path, name, whole, full_at):
    """Fill the disk at an operation; then go on with an empty one."""
    (tmp_path / "runs").mkdir()
    folder = tmp_path / "runs" / "cut"
    code, _ = run(monkeypatch, name, folder, full_at)
    err = capsys.readouterr().err
    last = err.splitlines()[-1]
    assert (
        code in (1, 2)
        and last.startswith("foretrace: error: ")
        and "No space left on device" in last
    ), err
    assert err.count("error:") == 1 and "Traceback" not in err, err
    if (folder / "config.json").exists():
        assert cli.main(["check", str(folder)]) == 0, capsys.readouterr().out
    code, _ = run(monkeypatch, name, folder)
    assert code == 0, capsys.readouterr().err
    assert lines(folder) == lines(whole)
    for key, array in arrays(whole).items():
        np.testing.assert_array_equal(arrays(folder)[key], array, err_msg=key)
    assert listed(tmp_path / "runs") == ["cut", *(f"cut/{file}" for file in listed(whole))]


@pytest.fixture(params=COMMANDS)
def undisturbed(request, monkeypatch, tmp_path, capsys):
    """Return a command, the folder of its undisturbed run, and the number of its operations."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i % 3},{i % 2}\n" for i in range(70)))
    code, disk = run(monkeypatch, request.param, tmp_path / "whole")
    assert code == 0, capsys.readouterr().err
    return request.param, tmp_path / "whole", disk.operations


@pytest.mark.full
def test_a_disk_that_is_full_somewhere(undisturbed, monkeypatch, tmp_path, capsys):
    name, whole, count = undisturbed
    assert_survives(monkeypatch, capsys, tmp_path, name, whole, count // 2)
