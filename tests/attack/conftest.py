"""A finished run on a stream, which tests copy and damage."""

import shutil

import pytest

from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.run import follow


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """Return the configuration and the run directory of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "a.csv").write_text("x,y\n" + "".join(f"{i % 3},{i % 2}\n" for i in range(60)))
    options = {"model": ModelConfig(experts=("baselines",)), "log_every": 20}
    config = StreamConfig(str(folder / "a.csv"), target="y", checkpoint_every=30, **options)
    follow(config, folder / "run", show_progress=False)
    return config, folder / "run"


@pytest.fixture
def config(finished):
    return finished[0]


@pytest.fixture
def run(finished, tmp_path):
    return shutil.copytree(finished[1], tmp_path / "run")
