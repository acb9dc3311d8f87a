"""Options of an agent that make no sense are refused before anything is run."""

import numpy as np
import pytest

from foretrace.rl._config import AgentConfig

WRONG = [
    ("learning_rate", -1.0),
    ("epsilon", 7.0),
    ("epsilon_steps", 0),
    ("learning_rate", 0.0),
    ("learning_rate", np.nan),
    ("learning_rate", np.inf),
    ("epsilon", -0.1),
    ("epsilon", np.nan),
    ("kappa", 0.0),
    ("discount", 1.1),
    ("trace_decay", -0.1),
    ("entropy", -1.0),
    ("actor_weight", np.inf),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_number_out_of_range_is_refused_by_its_name(name, value):
    with pytest.raises(ValueError, match=f"agent.{name}={value}"):
        AgentConfig(**{name: value})


def test_the_ends_of_the_ranges_are_allowed():
    AgentConfig(
        epsilon=0.0, epsilon_steps=1, discount=1.0, trace_decay=0.0, entropy=0.0, learning_rate=1e-9
    )
    AgentConfig(epsilon=1.0, discount=0.0, trace_decay=1.0, actor_weight=0.0)
