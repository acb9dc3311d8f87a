"""A full disk or a kill at any write: what is there stays whole, and `resume` ends undisturbed.

Every file of a run is written by `foretrace._runs.files` and `appended`. Here, from the k-th write,
sync, rename or link on, each of them fails, and a write leaves half of its bytes behind.
"""

import contextlib
import errno
import io
import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foretrace._runs import appended, figures, files
from foretrace._runs.checkpoint import _read
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli

STREAM = (
    "stream a.csv --experts baselines row --log-every 10 --checkpoint-every 7 "
    "--target c --delay 3 --id key --predictions {0}.csv --run-dir {0}"
)
MACHINE = ("seconds", "rows_per_second", "resident_mib", "microseconds")
ELSEWHERE = ("record", "predictions", "config")


class Killed(BaseException):
    """The end of a process at once."""


class Disk:
    """A disk whose operations fail with an error, some of them, counted from 0."""

    def __init__(self, failing, error):
        self.failing = failing
        self.error = error
        self.operations = []

    def use(self, name):
        """Note the name of an operation, which may fail."""
        self.operations.append(name)
        if len(self.operations) - 1 in self.failing:
            raise self.error

    def __getattr__(self, name):
        """Return an attribute of the module `os`; writes are counted."""
        found = getattr(os, name)
        if name not in ("fsync", "replace", "link"):
            return found

        def counted(*arguments):
            # A run directory may be a mount point: no file goes from one folder to another.
            assert name == "fsync" or len({os.path.dirname(path) for path in arguments}) == 1
            self.use(name)
            return found(*arguments)

        return counted

    def open_file(self, path, mode, **options):
        """Open a file whose writes count; the first one that fails writes a half."""
        disk = self

        class File(io.FileIO):
            is_full = False

            def write(self, data):
                try:
                    disk.use(Path(path).stem)
                except OSError:
                    if self.is_full or len(data) < 2:
                        raise
                    self.is_full = True
                    return super().write(bytes(data)[: len(data) // 2])
                return super().write(data)

        file = File(path, mode.replace("b", ""), **options)
        return io.BufferedReader(file) if mode == "rb" else io.BufferedWriter(file)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
FOR_EVER = 10**9


def run(folder, failing=(), error=FULL):
    """Begin a run or go on with it on such a disk; return the exit code and the disk."""
    disk = Disk(failing, error)
    with pytest.MonkeyPatch.context() as patch:
        for module in (files, appended):
            patch.setattr(module, "os", disk)
            patch.setattr(module, "open", disk.open_file, raising=False)
        # The curves are drawn elsewhere: here their file counts.
        patch.setattr(figures, "page_as_png", lambda *_: b"a picture")
        words = "resume {}" if (folder / "config.json").exists() else STREAM
        try:
            code = cli.main(words.format(folder).split())
        except Killed:
            code = -9
    return code, disk


def content(folder):
    """Return what a run has learned, recorded and predicted, and the names of its files."""
    beside, arrays = _read(folder / "checkpoint.safetensors")
    lines = [
        {name: value for name, value in line.items() if name not in MACHINE}
        for line in read_metrics(folder / "metrics.jsonl")
    ]
    kept = {name: v for name, v in beside.extra.items() if name not in (*MACHINE, *ELSEWHERE)}
    found = {name: array.tobytes() for name, array in arrays.items() if name != "__extra__"}
    written = [path.read_bytes() for path in sorted(folder.parent.glob(f"{folder.name}.*"))]
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return found, json.dumps([lines, kept]), written, names


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Return the disk of an undisturbed run, with the run's content."""
    folder = tmp_path_factory.mktemp("disk")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        rows = [f"k{i},{i % 3},{i * i % 5 + i % 2 / 2},{'uvw'[i * i % 3]}" for i in range(45)]
        (folder / "a.csv").write_text("\n".join(["key,x,y,c", *rows]))
        code, disk = run(folder / "whole")
        assert code == 0
        disk.content = content(folder / "whole")
        yield disk


WAYS = {
    "killed": (FOR_EVER, Killed()),
    "full": (FOR_EVER, FULL),
    "full for a moment": (2, FULL),
}
"""Number of operations that fail, and with which error."""


@given(
    shares=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=2),
    way=st.sampled_from(sorted(WAYS)),
    predicts=st.booleans(),
)
@example([0.01, 0.6], "killed", False)
@example([0.5], "full for a moment", True)
@example([0.04], "full for a moment", False)  # the folder of a new configuration is not synced
def test_whatever_cannot_be_written_the_run_ends_as_if_undisturbed(
    undisturbed, tmp_path_factory, shares, way, predicts
):
    """Operations fail from shares of them on, or of the writes of predictions; then `resume`."""
    number, error = WAYS[way]
    operations = undisturbed.operations
    places = [i for i, one in enumerate(operations) if one == "whole" or not predicts]
    folder = tmp_path_factory.mktemp("cut") / "run"
    for at in (places[int(share * len(places))] for share in shares if places):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            code, _ = run(folder, range(at, at + number), error)
            is_begun = (folder / "config.json").exists()
            assert code == 0 or not is_begun or cli.main(["check", str(folder)]) == 0
        err = said.getvalue()
        assert "Traceback" not in err and err.count("foretrace: error:") == (code in (1, 2)), err
        assert way == "killed" or code == 0 or "No space left on device" in err, err
    assert run(folder)[0] == 0
    assert content(folder) == undisturbed.content
    assert {path.stem for path in folder.parent.iterdir()} == {"run"}


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_before_it_is_used(undisturbed):
    done = undisturbed.operations
    named = [at for at, name in enumerate(done) if name in ("replace", "link")]
    assert named and all(done[at - 1] == done[at + 1] == "fsync" for at in named)
