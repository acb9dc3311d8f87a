"""A cache of its own for each test, and small data in the form of the public files."""

import pytest
from stored import Data


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def data(tmp_path):
    return Data(tmp_path / "data")
