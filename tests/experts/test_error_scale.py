"""Scales of errors and counts of classes follow a new distribution after any history."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.stream.experts.error_scale import learned_error, new_error_scale
from foretrace.stream.experts.settings import TUNED

pytestmark = pytest.mark.usefixtures("standard_promotion")
NOISE = np.abs(np.random.default_rng(0).normal(size=200))
YES = jnp.array(True)


def follow(scale, errors, rate=0.005):
    for error in errors:
        scale = learned_error(scale, jnp.array([error]), 10.0, jnp.array(rate), YES)
    return scale


@given(st.floats(-30, 0), st.floats(-6, 6))
def test_a_new_scale_is_found_after_a_few_errors_however_small_the_old_one(old, new):
    if new - old < 3:
        return
    scale = follow(
        new_error_scale(jnp.array([10.0**old])), 10.0**new * (1 + NOISE[: TUNED.new_errors + 5])
    )
    assert 0.5 < float(scale.size[0]) / 10.0**new < 4


def test_single_outliers_and_unknown_labels_do_not_move_it():
    scale = follow(new_error_scale(jnp.array([1.0])), np.where(np.arange(200) % 10, NOISE, 1e9))
    assert 0.5 < float(scale.size[0]) < 2
    same = learned_error(scale, jnp.array([1e9]), 10.0, jnp.array(0.0), YES)
    assert all((a == b).all() for a, b in zip(same, scale, strict=True))
