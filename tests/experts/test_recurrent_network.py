"""The network among the experts: its learner's own steps, on the carry of each row."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import softmax
from test_mixture import NUMBERS
from tiers import fast, slow

from foretrace._engine.correction import Kept, corrected
from foretrace.stream.experts.answer import answer_of
from foretrace.stream.experts.expert import Lesson
from foretrace.stream.experts.network import RecurrentNetwork
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.features import expand, look, maps, new_past
from foretrace.stream.model.model import build_learner, resolve
from foretrace.stream.model.model_config import ModelConfig

pytestmark = pytest.mark.usefixtures("standard_promotion")
YES = jnp.array(True)
CLASSES = Shape(3, (), 4, classes=True, previous=False)
TINY = {"depth": 1, "model_size": 4, "state_size": 3, "learning_rate": 0.05}
DEEP = {"depth": 2, "rule": "online(depth=2)"}


def made(shape, **options):
    """Return options and shape of a network beside the baselines, by default online."""
    chosen = TINY | {"rule": "online"} | options
    return resolve(ModelConfig("small", **chosen), shape)


@functools.cache
def expert_of(model):
    """Return the expert of options and a shape, and its compiled step."""
    config, shape = model
    expert = RecurrentNetwork(build_learner(config, shape), answer_of(shape))
    return expert, jax.jit(expert.take, static_argnames="waits"), jax.jit(expert.label)


@functools.partial(jax.jit, static_argnums=0)
def features(shape, inputs, last=0.0):
    """Return features of a row with these inputs of the network, and a last number."""
    none = jnp.zeros(shape.network_inputs), jnp.zeros(shape.num_raw), jnp.ones(2), jnp.ones(2)
    seen = look(shape, maps(shape), new_past(shape), *none)[0]
    labels = jnp.zeros_like(seen.labels).at[0].set(last)
    moments = jnp.array([4.0 if shape.classes else 0.0, 1])
    given = {"inputs": jnp.asarray(inputs, float), "moments": moments}
    return expand(shape, maps(shape), seen._replace(labels=labels, **given))


def close(a, b, tolerance=1e-9):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            x, y = jax.random.key_data(x), jax.random.key_data(y)
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("delay", "options"), fast([(2, {}), (0, {}), slow(2, DEEP)], 0))
def test_learning_late_is_learning_on_the_carry_of_the_row(delay, options):
    """The definition: one learner, given the carry before the row that it predicts or learns."""
    model = made(CLASSES, **options)
    (expert, take, learn), draw = expert_of(model), np.random.default_rng(0)
    xs, ys = draw.normal(size=(10, 3)), draw.integers(0, 4, 10).astype(np.int32)
    seen, learner = [features(model[1], x) for x in xs], expert.learner
    state, own, memos, its = expert.init(), learner.init(), [], []
    carry, its_carry = expert.new_carry(state), own.carry
    for t in range(10):
        its.append((its_carry, own.network))
        outputs, passed = learner.predict(own._replace(carry=its_carry), jnp.asarray(xs[t][None]))
        found, carry, memo = take(state, carry, seen[t], YES, waits=delay > 0)
        its_carry = passed.carry
        memos.append(memo)
        close(found, softmax(outputs))
        if (due := t - delay) >= 0:
            lesson = Lesson(seen[due], found, np.eye(4)[ys[due]], YES, YES, None, delay or None)
            state, carry = learn(state, carry, memos[due], lesson)
            before, network = its[due]
            if delay:  # the state of then, as the parameters of now would have left it
                before = Kept.of(network, before).now(own.network, TUNED.late)
            ready = own._replace(carry=before)
            own, _ = learner.step(ready, *map(jnp.asarray, (xs[due][None], ys[due][None])))
            its_carry = its_carry if delay else own.carry
    close((state.learner.network, state.learner.opt_state), (own.network, own.opt_state))
    close(carry, its_carry)


@pytest.mark.parametrize("options", fast([{}, DEEP], 0))
def test_a_late_labels_state_is_the_learners_correction_to_first_order(options):
    learner = expert_of(made(CLASSES, **options))[0].learner
    state, draw = learner.init(), np.random.default_rng(1)
    for x, y in zip(draw.normal(size=(5, 1, 3)), draw.integers(0, 4, (5, 1)), strict=True):
        state, _ = learner.step(state, jnp.asarray(x), jnp.asarray(y, jnp.int32))
    change = jax.tree.map(lambda leaf: 1e-6 * draw.normal(size=leaf.shape), state.network)
    after = jax.tree.map(jnp.add, state.network, change)
    found = Kept.of(state.network, state.carry).now(after, TUNED.late)
    wanted = corrected(state.network, change, state.carry, TUNED.late, batched=False)
    moves = [jax.tree.map(jnp.subtract, one.h, state.carry.h) for one in (found, wanted)]
    close(*(jax.tree.map(lambda leaf: 1e6 * leaf, move) for move in moves), 1e-3)


def test_a_step_that_is_not_finite_is_refused_and_counted():
    model = made(CLASSES)
    expert, _, learn = expert_of(model)
    before, label = (expert.init(), expert.new_carry(expert.init())), np.eye(4)[1]

    def learned(before, lesson):
        return learn(*before, before[1], lesson)

    for times in (1, 2):
        lesson = Lesson(features(model[1], np.array([np.nan, 0, 0])), label[None], label, YES, YES)
        after = learned(before, lesson)
        close(after[0].learner.network, before[0].learner.network)
        close(after[1], before[1])
        # In all, in a row, and the longest.
        assert {int(one) for one in after[0].refusals} == {times}
        before = after
    row = features(model[1], np.array([1.0, 0, 0]))
    fine = learned(before, lesson._replace(features=row))
    assert [int(one) for one in fine[0].refusals] == [2, 0, 2]
    # Without a label, and without a row, nothing is learned or counted.
    same = learned(fine, lesson._replace(known=~YES, has_row=~YES))
    close(same[0].learner.network, fine[0].learner.network)
    close((same[1], same[0].refusals), (fine[1], fine[0].refusals))


@jax.jit
def residual_lesson(last, y):
    zeros = np.zeros(NUMBERS.inputs + 2)
    shape = dataclasses.replace(NUMBERS, has_network=True)
    label = jnp.asarray(y, float)[None]
    return Lesson(features(shape, zeros, last), jnp.zeros((1, 1)), label, YES, YES)


@pytest.fixture(scope="module")
def noted():
    """Return a function of a slope: an expert, and statistics of numbers that follow the last."""
    with jax.numpy_dtype_promotion("standard"):
        # Residuals are not the network's: any one will do.
        expert = RecurrentNetwork(expert_of(made(CLASSES))[0].learner, answer_of(NUMBERS))
        residuals, noise = expert.init().residuals, 0.3 * np.random.default_rng(0).normal(size=800)

    @jax.jit
    def program(slope):
        def note(carry, noise):
            state, last = carry
            y = slope * last + noise
            return (expert._noted(state, residual_lesson(last, y)), y), None

        (state, _), _ = jax.lax.scan(note, (residuals, jnp.zeros(())), noise)
        return state

    return lambda slope: (expert, program(slope))


def read(expert, residuals, last, output):
    """Return the prediction from an output of the network."""
    seen = residual_lesson(last, 0.0).features
    return expert.read(residuals, jnp.asarray(output, float)[None], seen)[0, 0]


@pytest.mark.parametrize("slope", [0.0, 0.8])
def test_the_base_is_the_best_linear_prediction_from_the_last_number(noted, slope):
    expert, state = noted(slope)
    assert read(expert, state, 1.0, 0.0) == pytest.approx(slope, abs=0.08)
    # The size is that of what the base leaves.
    assert read(expert, state, 0.0, 1.0) == pytest.approx(0.3, rel=0.1)


def test_had_the_network_put_out_its_target_it_would_have_been_right(noted):
    expert, state = noted(0.7)
    for y, last in ((0.4, -1.2), (-0.5, 0.3), (2.0, 1.9)):
        lesson = residual_lesson(last, y)
        (output,) = expert.target(state, lesson.label, lesson.features)
        assert read(expert, state, last, output) == pytest.approx(y, abs=1e-12)


def test_an_outlier_and_an_output_that_is_not_finite_are_bounded(noted):
    expert, state = noted(0.7)
    far = residual_lesson(0.0, 1e9)
    assert expert.target(state, far.label, far.features) == 10
    assert expert._noted(state, far).scale.size[0] < 1.2 * state.scale.size[0]
    close(expert._noted(state, far._replace(known=~YES)), state, 0.0)
    for output in (np.nan, np.inf, -np.inf, 1e300):
        assert jnp.isfinite(read(expert, state, 0.5, output))
