"""Labels that may be broken, and the units of labels without them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from foretrace.stream.model.moments import FIRST, new_moments
from foretrace.stream.model.ordinary import new_ordinary

TRUE = jnp.asarray(True)


def learned(labels, one_stream=True):
    """Return what is known after labels."""

    def step(known, y):
        return known.learn(y, TRUE), None

    labels = jnp.asarray(labels, float)
    return jax.jit(lambda ys: lax.scan(step, new_ordinary(one_stream=one_stream), ys)[0])(labels)


def test_broken_labels_leave_mean_and_deviation_as_they_are():
    draw = np.random.default_rng(0)
    labels = 20 + 4 * draw.normal(size=400)
    broken = draw.uniform(size=400) < 0.1
    broken[[2, 7]] = True
    mean, deviation = learned(np.where(broken, -9999.0, labels)).units
    assert abs(mean - 20) < 1 and abs(deviation - 4) < 1
    # A new level is one of thirty in a row.
    assert abs(learned([*labels, *labels[:29] + 1000]).units[0] - 20) < 1
    assert abs(learned([*labels, *labels[:31] + 1000]).units[0] - 1020) < 2
    # Members of other sizes are no broken labels.
    assert learned(np.where(broken, -9999.0, labels), one_stream=False).units[1] > 1000


def test_a_label_far_from_all_others_is_far_unless_one_as_far_was_predicted_right():
    known = learned(np.random.default_rng(1).normal(size=100))
    far, near = jnp.asarray(1000.0), jnp.asarray(200.0)
    assert known.is_far(far) and not known.is_far(near) and known.is_far(-far)
    predicted, size = jnp.array([600.0]), jnp.array([1.0])
    assert known.judge(predicted + 20, predicted, size, TRUE).is_far(far)  # a wrong prediction
    assert known.judge(predicted, predicted, size, ~TRUE).is_far(far)
    assert not known.judge(predicted + 3, predicted, size, TRUE).is_far(far)


def test_units_of_all_labels_lose_a_broken_first_one():
    draw = np.random.default_rng(2)
    labels = jnp.asarray(np.r_[1e6, 20 + 4 * draw.normal(size=29)])

    def step(both, y):
        moments, ordinary = both
        moments, ordinary = moments.learn(y[None], TRUE[None])[1], ordinary.learn(y, TRUE)
        return (ordinary.cleaned(moments), ordinary), moments.scale[0]

    start = new_moments(1), new_ordinary(one_stream=True)
    (moments, _), scales = jax.jit(lambda ys: lax.scan(step, start, ys))(labels)
    assert scales[FIRST] > 1e5 and 2 < moments.scale[0] < 6 and abs(moments.all.mean[0] - 20) < 2
