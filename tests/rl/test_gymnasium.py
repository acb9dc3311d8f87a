"""Environments of gymnasium: step by step in Python, as pure functions, and in runs."""

import json
import sys
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rl_cases import Space, Walk, make_agent

from foretrace import rl
from foretrace.cli import _main as cli
from foretrace.rl import _live
from foretrace.rl._gymnasium import as_environment


@pytest.mark.full
@pytest.mark.parametrize("end", ["cut", "last"])
def test_an_agent_lives_in_an_environment_of_gymnasium(end):
    """Every reward is learned from within its step; a cut one with the last observation's value."""
    agent = make_agent()
    environment = Walk(**({"last": None} | {end: 3}), wrong_from=1, reward=1.0)
    steps = list(rl.interact(agent, agent.init(), environment, 7, seed=7))
    assert [step.total for step in steps] == [None, None, 3.0] * 2 + [None]
    assert environment.seeds == [7, None, None]
    assert [int(step.state.step) for step in steps] == list(range(1, 8))
    before, rest = steps[1].state, 0.0
    if end == "cut":
        twin = Walk(last=None)
        twin.reset(seed=7)
        actions = [agent.step(agent.init(), rl.Transition(np.zeros(2), first=True))[0]]
        del actions
        rest = steps[2]
    errors = [float(step.info.td_error) for step in steps]
    assert (errors[2] == pytest.approx(1 - float(before.value), abs=1e-6)) == (end == "last")
