"""The environments of the command line: one list for options, names, reports and documentation."""

from pathlib import Path

import pytest

from foretrace._runs.config_json import from_json, to_json
from foretrace.rl._config import TASKS, RLConfig, task_name

PAGE = Path(__file__).parents[2] / "docs" / "agents.md"


def test_every_environment_has_a_configuration_that_is_read_back():
    for name, config in TASKS.items():
        assert from_json(RLConfig, to_json(config)) == config
        assert task_name(config.environment) == name


@pytest.mark.parametrize("name", list(TASKS))
def test_the_page_shows_how_each_is_run_and_what_it_asks_for(name):
    page = PAGE.read_text()
    assert f"foretrace rl {name}" in page
    assert f"| `{name}` |" in page
