"""Fixtures of streams: the files of the frozen table, and an undisturbed run of each stream."""

import functools

import pytest
import test_frozen as frozen
from streams import undisturbed

from foretrace.stream.model import model as _model
from foretrace.stream.runs import opening as _opening
from foretrace.stream.runs import plan as _plan

# Tests have more models in turn than a user's process: each is compiled once.
_model._mixture = functools.lru_cache(maxsize=128)(_model._mixture.__wrapped__)


@pytest.fixture
def twenty_rows_decide(monkeypatch):
    """Let the first 20 rows decide what a stream holds."""
    for module in (_opening, _plan):
        monkeypatch.setattr(module, "LOOK_AHEAD", 20)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Return a folder with `a.csv` and `a.txt`, which tests leave as they are, and runs."""
    folder = tmp_path_factory.mktemp("files")
    frozen.write_files(folder)
    return folder


@pytest.fixture(scope="module")
def whole(request, files, tmp_path_factory):
    """Return the undisturbed run of the stream whose name is the parameter."""
    return undisturbed(request.param, files, tmp_path_factory.mktemp("whole") / "run")
