"""Matrix products are as exact as asked; what all of the past has added up to is never rounded."""

import dataclasses
import re
from functools import partial

import jax
import numpy as np
import pytest
from gradients import make_network
from trained import TRAINED

import foretrace as ft
from foretrace import experiment
from foretrace._recurrence.sensitivity import attach
from foretrace.experiment._program import empty_tally, learn, tally_batch

pytestmark = pytest.mark.usefixtures("standard_promotion")

ROUNDED, EXACT, DEFAULT = (
    "rhs_precision_type = bf16",
    "precision = [HIGHEST, HIGHEST]",
    "precision = [DEFAULT, DEFAULT]",
)


def products(program, *arguments):
    """Return the matrix products of real numbers in a program, as text."""
    text = jax.jit(program).lower(*arguments).as_text()
    found = re.findall(r"stablehlo\.dot_general.*", text)
    assert found
    return [line for line in found if "complex" not in line]


@pytest.mark.full
def test_training_and_evaluation_multiply_as_asked():
    for precision, sign in {"bfloat16": ROUNDED, "float32": EXACT, None: DEFAULT}.items():
        config = dataclasses.replace(TRAINED, chunk=2, matmul_precision=precision)
        learner = experiment.build(config).learner
        state = learner.init()
        learning = products(partial(learn, config, learner, seed=0), state, np.int32(0))
        scoring = partial(tally_batch, config, batch=config.task.evaluation("test", 0, 0, 2))
        for lines in (learning, products(scoring, state.network, empty_tally())):
            # Sums over the past are exact whatever is asked.
            assert all(sign in line or EXACT in line for line in lines)
            assert any(sign in line for line in lines)


def test_attached_sensitivities_are_not_rounded():
    network = make_network("gru", 1)
    e = ft.init_carry(network, ft.RTRL).e
    cell = network.block(0).cell

    def error(h, e, theta):
        return jax.grad(lambda theta: attach(h, e, theta).sum())(theta)

    with jax.default_matmul_precision("BF16_BF16_F32"):
        first = jax.tree.map(lambda leaf: leaf[0], e)
        lines = products(error, cell.init_state(), first, cell.coefficients())
    assert all(EXACT in line for line in lines)
