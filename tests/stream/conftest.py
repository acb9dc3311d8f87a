"""Fixtures of streams: the files of the frozen table."""

import pytest
import test_frozen as frozen


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """Return a folder with `a.csv` and `a.txt`, which tests leave as they are."""
    folder = tmp_path_factory.mktemp("files")
    frozen.write_files(folder)
    return folder
