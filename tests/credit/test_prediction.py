"""Predicted errors: the paper's rule without a prediction, backpropagation through time with a perfect one."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import foretrace as ft
from foretrace._credit.prediction import init_predictor
from foretrace._engine.gradient import evaluate
from foretrace.experiment._build import build
from foretrace.experiment._config import Config, OptimizerConfig
from foretrace.experiment._report import published
from foretrace.paper._records import identity
from foretrace.tasks.copy import Copy
from foretrace.tasks.listops import ListOps

LOSS = ft.losses.softmax_cross_entropy
LENGTH = 6
XS = np.random.default_rng(0).normal(size=(LENGTH, 2))
YS = np.random.default_rng(1).integers(0, 3, size=LENGTH)

# At least as many features as steps, so that some linear map predicts every error of a sequence.
CELLS = {
    "lru": ft.LRU.factory(state_size=4, r_min=0.5),
    "rtu": ft.RTU.factory(state_size=4),
    "lstm": ft.ElementwiseLSTM.factory(),
    "gru": ft.GRU.factory(),
}


@pytest.fixture(params=CELLS)
def cell(request):
    return request.param


def make(cell, depth=3):
    return ft.Network(2, 3, model_size=8, depth=depth, cell=CELLS[cell], key=jax.random.key(0))


def vector(tree):
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def predictor_of(network, weights):
    return init_predictor(network)._replace(weights=weights)


def random_predictor(network, scale=0.1):
    zero = init_predictor(network).weights
    return predictor_of(network, scale * jax.random.normal(jax.random.key(5), zero.shape))


def rule_of(cell):
    return (ft.RTRL if cell == "gru" else ft.ONLINE).with_predicted_errors()


def in_chunks(network, rule, sizes, predictor, reset=None, xs=XS, ys=YS):
    """Return gradient and moments of a sequence in chunks of these sizes; the last one ends it."""
    carry, start, total = ft.init_carry(network, rule), 0, 0.0
    for i, size in enumerate(sizes):
        part = slice(start, start + size)
        found = jax.jit(evaluate, static_argnames=("rule", "loss", "keep_carry"))(
            network,
            carry,
            jnp.asarray(xs[part]),
            jnp.asarray(ys[part]),
            reset=None if reset is None else jnp.asarray(reset[part]),
            predictor=predictor,
            rule=rule,
            loss=LOSS,
            keep_carry=i < len(sizes) - 1,
        )
        total, carry, start = total + vector((found.grads, found.moments)), found.carry, start + size
    return total


def whole(network, rule, predictor=None):
    run = jax.jit(evaluate, static_argnames=("rule", "loss", "keep_carry"))
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    return run(network, None, xs, ys, predictor=predictor, rule=rule, loss=LOSS, keep_carry=False)


def test_without_a_prediction_it_is_the_rule_itself(cell):
    network, rule = make(cell), rule_of(cell)
    plain = whole(network, ft.RTRL if cell == "gru" else ft.ONLINE)
    np.testing.assert_allclose(vector(whole(network, rule).grads), vector(plain.grads), atol=1e-14)


@pytest.mark.parametrize("sizes", [(6,), (1,) * 6, (2, 3, 1)], ids=str)
@pytest.mark.parametrize("mode", ["online", "hybrid"])
def test_with_a_perfect_prediction_it_is_backpropagation_through_time(cell, mode, sizes):
    """Layer by layer from above, since what a layer is to predict contains the predictions of those above it."""
    network = make(cell)
    if mode == "hybrid" and cell == "gru":
        pytest.skip("HYBRID is not exact within a dense layer")
    rule = ft.HYBRID.with_predicted_errors() if mode == "hybrid" else rule_of(cell)
    predictor = init_predictor(network)
    count = vector(network).size
    want = vector(whole(network, ft.BPTT).grads)
    errors = []
    for _ in range(network.depth):
        found = in_chunks(network, rule, sizes, predictor)
        errors.append(float(jnp.abs(found[:count] - want).max()))
        gram, cross = jnp.split(found[count:], [predictor.gram.size])
        gram, cross = gram.reshape(predictor.gram.shape), cross.reshape(predictor.cross.shape)
        predictor = predictor_of(network, jnp.linalg.pinv(gram, rtol=1e-13, hermitian=True) @ cross)
    found = in_chunks(network, rule, sizes, predictor)[:count]
    np.testing.assert_allclose(found, want, atol=1e-7)
    if mode == "online" or len(sizes) > 1:
        assert errors[0] > 1e-3


@pytest.mark.parametrize("sizes", [(1,) * 6, (2, 3, 1)], ids=str)
def test_gradient_and_sums_do_not_depend_on_chunks(cell, sizes):
    network, rule = make(cell), rule_of(cell)
    predictor = random_predictor(network)
    found = in_chunks(network, rule, sizes, predictor)
    np.testing.assert_allclose(found, in_chunks(network, rule, (6,), predictor), atol=1e-10)
    assert jnp.abs(found - in_chunks(network, rule, sizes, init_predictor(network))).max() > 1e-3


def test_the_sums_are_those_of_the_definition():
    """One layer, the future loss as a function of each state, by a loop."""
    network = make("lru", depth=1)
    block = network.block(0)
    theta = block.cell.coefficients()
    zs = [block.before(network.encoder(jnp.asarray(x))) for x in XS]

    def future(h, t):
        value = 0.0
        for s in range(t, LENGTH):
            h = block.cell.step(theta, h, h, zs[s])
            features = block.after(network.encoder(jnp.asarray(XS[s])), block.cell.readout(h, zs[s]), None)
            value = value + LOSS(network.decoder(features), jnp.asarray(YS[s]))
        return value

    h, gram, cross = block.cell.init_state(), 0.0, 0.0
    for t in range(LENGTH):
        phi = jnp.concatenate([jnp.ones(1), h.real, h.imag])
        error = jax.grad(future)(h, t)
        gram, cross = gram + jnp.outer(phi, phi), cross + jnp.outer(phi, jnp.concatenate([error.real, error.imag]))
        h = block.cell.step(theta, h, h, zs[t])
    found = whole(network, ft.ONLINE.with_predicted_errors()).moments
    np.testing.assert_allclose(found.gram[0], gram, atol=1e-12)
    np.testing.assert_allclose(found.cross[0], cross, atol=1e-12)


def test_a_start_separates_episodes(cell):
    """What comes after it neither enters the sums of what was before, nor the other way round."""
    network, rule = make(cell), rule_of(cell)
    predictor = random_predictor(network)
    reset = np.arange(LENGTH) == 4
    both = in_chunks(network, rule, (3, 3), predictor, reset)
    again = in_chunks(network, rule, (4, 2), predictor, reset)
    np.testing.assert_allclose(both, again, atol=1e-10)
    second = in_chunks(network, rule, (2,), predictor, xs=XS[4:], ys=YS[4:])
    carry = ft.init_carry(network, rule)
    first = evaluate(
        network, carry, jnp.asarray(XS[:4]), jnp.asarray(YS[:4]), predictor=predictor, rule=rule, loss=LOSS
    )
    count, sums = vector(network).size, predictor.weights.size
    np.testing.assert_allclose(both[:count], vector(first.grads) + second[:count], atol=1e-10)
    # But for the constant, the row of the initial state, which only a sequence of its own has.
    cross = [part[-sums:].reshape(predictor.cross.shape)[:, 1:] for part in (both, vector(first.moments), second)]
    np.testing.assert_allclose(cross[0], cross[1] + cross[2], atol=1e-10)


@pytest.mark.parametrize("batched", [False, True])
def test_padding_changes_nothing(cell, batched):
    network, rule = make(cell), rule_of(cell)
    predictor = random_predictor(network)
    run = jax.jit(evaluate, static_argnames=("rule", "loss", "keep_carry"))
    options = {"predictor": predictor, "rule": rule, "loss": LOSS, "keep_carry": False}
    xs = jnp.pad(jnp.asarray(XS), ((0, 3), (0, 0)), constant_values=2.0)
    ys, mask = jnp.pad(jnp.asarray(YS), (0, 3)), jnp.arange(LENGTH + 3) < LENGTH
    plain = whole(network, rule, predictor)
    if batched:
        found = run(network, None, jnp.stack([xs, xs]), jnp.stack([ys, ys]), jnp.stack([mask, mask]), **options)
    else:
        found = run(network, None, xs, ys, mask, **options)
    want, have = (vector((out.loss, out.grads, out.moments)) for out in (plain, found))
    np.testing.assert_allclose(have, want, atol=1e-12)


def test_rtrl_on_independent_modules_is_the_same():
    network, predictor = make("lru"), random_predictor(make("lru"))
    rules = (ft.ONLINE.with_predicted_errors(), ft.RTRL.with_predicted_errors())
    online, rtrl = (in_chunks(network, rule, (2, 4), predictor) for rule in rules)
    np.testing.assert_allclose(rtrl, online, atol=1e-12)


def test_a_batch_is_the_mean_of_its_streams():
    network, rule = make("lru"), rule_of("lru")
    predictor = random_predictor(network)
    xs, ys = jnp.stack([XS, -XS]), jnp.stack([YS, YS])
    options = {"predictor": predictor, "rule": rule, "loss": LOSS, "keep_carry": False}
    found = evaluate(network, None, xs, ys, **options)
    ones = [evaluate(network, None, x, y, **options) for x, y in zip(xs, ys, strict=True)]
    mean = sum(vector((one.loss, one.grads, one.moments)) for one in ones) / 2
    np.testing.assert_allclose(vector((found.loss, found.grads, found.moments)), mean, atol=1e-12)


def sequences(count, seed=3):
    rng = np.random.default_rng(seed)
    return jnp.asarray(rng.normal(size=(count, 4, LENGTH, 2))), jnp.asarray(rng.integers(0, 3, size=(count, 4, LENGTH)))


def run_learner(xs, ys, chunk, **options):
    network, rule = make("lru"), ft.ONLINE.with_predicted_errors()
    learner = ft.Learner(network, rule=rule, optimizer=optax.sgd(0.1), loss=LOSS, batch_size=4, **options)
    state, states = learner.init(), []
    for x, y in zip(xs, ys, strict=True):
        for start in range(0, LENGTH, chunk):
            end = start + chunk >= LENGTH and learner.accumulate
            state, info = learner.step(state, x[:, start : start + chunk], y[:, start : start + chunk], end=end)
            assert info.accepted
        states.append((state, info))
    return states


def test_sequences_take_turns_and_the_gradient_is_that_of_the_fitted_predictor():
    xs, ys = sequences(4)
    network, rule = make("lru"), ft.ONLINE.with_predicted_errors()
    states = run_learner(xs, ys, LENGTH, whole_sequences=True)
    assert all((a == b).all() for a, b in zip(vector(states[0][0].network), vector(network), strict=True))
    assert states[0][1].update_norm == 0 and states[1][1].update_norm > 0
    predictor = ft.fit_predictor(network, xs[0], ys[0], rule=rule, loss=LOSS, passes=1)
    # Not `ft.gradient`: it goes on behind the chunk, where a whole sequence ends and the last state has no future.
    ended = evaluate(network, None, xs[1], ys[1], predictor=predictor, rule=rule, loss=LOSS, keep_carry=False).grads
    want = jax.tree.map(lambda p, g: p - 0.1 * g, network, ended)
    np.testing.assert_allclose(vector(states[1][0].network), vector(want), atol=1e-12)
    # And again, from the new parameters, with what belongs to the old ones forgotten.
    predictor = ft.fit_predictor(want, xs[2], ys[2], rule=rule, loss=LOSS, passes=1)
    ended = evaluate(want, None, xs[3], ys[3], predictor=predictor, rule=rule, loss=LOSS, keep_carry=False).grads
    want = jax.tree.map(lambda p, g: p - 0.1 * g, want, ended)
    np.testing.assert_allclose(vector(states[3][0].network), vector(want), atol=1e-12)


def test_in_chunks_it_learns_the_same():
    xs, ys = sequences(4)
    whole_ones = run_learner(xs, ys, LENGTH, whole_sequences=True)
    for chunk in (1, 4):
        chunked = run_learner(xs, ys, chunk, accumulate=True)
        np.testing.assert_allclose(vector(chunked[-1][0].network), vector(whole_ones[-1][0].network), atol=1e-9)


def test_a_bad_sequence_leaves_the_predictor_as_it_was():
    xs, ys = sequences(1)
    network, rule = make("lru"), ft.ONLINE.with_predicted_errors()
    learner = ft.Learner(network, rule=rule, optimizer=optax.sgd(0.1), loss=LOSS, batch_size=4, whole_sequences=True)
    state, _ = learner.step(learner.init(), xs[0], ys[0])
    assert state.predictor.fitted
    after, info = learner.step(state, jnp.where(xs[0] > 0, 1e308, xs[0]), ys[0])
    assert not info.accepted
    for new, old in zip(after.predictor, state.predictor, strict=True):
        np.testing.assert_array_equal(new, old)


def test_steps_that_are_only_predicted_are_fitted_to_as_well():
    """The first steps without targets, by `predict`, or by `step` with a mask."""
    network = make("lru")
    options = {"optimizer": optax.sgd(0.1), "loss": LOSS, "accumulate": True}
    learner = ft.Learner(network, rule=ft.ONLINE.with_predicted_errors(), **options)
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    _, ahead = learner.predict(learner.init(), xs[:4])
    ahead, _ = learner.step(ahead, xs[4:], ys[4:], end=True)
    masked, _ = learner.step(learner.init(), xs, ys, mask=jnp.arange(LENGTH) >= 4, end=True)
    np.testing.assert_allclose(ahead.predictor.weights, masked.predictor.weights, atol=1e-12)


def test_a_state_is_saved_in_the_middle_of_a_turn(tmp_path):
    xs, ys = sequences(1)
    options = {"optimizer": optax.sgd(0.1), "loss": LOSS, "batch_size": 4, "whole_sequences": True}
    learner = ft.Learner(make("lru"), rule=ft.ONLINE.with_predicted_errors(), **options)
    state, _ = learner.step(learner.init(), xs[0], ys[0])
    ft.save(tmp_path / "state.safetensors", state)
    again = ft.load(tmp_path / "state.safetensors", learner)
    on, again = (learner.step(start, xs[0], ys[0])[0] for start in (state, again))
    np.testing.assert_array_equal(vector(again.network), vector(on.network))


def test_a_run_is_configured_reported_and_recognised():
    config = Config(predict_errors=True, steps=7)
    learner = build(config).learner
    assert learner.rule == ft.ONLINE.with_predicted_errors() and config.updates == 3
    assert published(Config()) and published(config) is None
    assert identity("table1", "cpu", "a", "report", Config()) != identity("table1", "cpu", "a", "report", config)
    for options, message in {
        "rule": ({"rule": "bptt"}, "carry sensitivities"),
        "warmup": ({"steps": 10, "optimizer": OptimizerConfig(warmup_steps=5)}, "the 5 updates"),
        "chunk": ({"chunk": 5, "task": ListOps()}, "differ in length"),
        "hybrid": ({"rule": "hybrid"}, "nothing is left to be predicted"),
    }.values():
        with pytest.raises(ValueError, match=message):
            build(Config(predict_errors=True, **options))


def test_what_it_does_not_go_with_is_said():
    network = make("lru")
    with pytest.raises(ValueError, match="predicted for rules that carry sensitivities"):
        ft.BPTT.with_predicted_errors()
    with pytest.raises(ValueError, match="without credit in depth"):
        ft.ONLINE.with_depth(1).with_predicted_errors()
    rule = ft.ONLINE.with_predicted_errors()
    options = {"rule": rule, "optimizer": optax.sgd(0.1), "loss": LOSS}
    with pytest.raises(ValueError, match="stand still"):
        ft.Learner(network, **options)
    with pytest.raises(ValueError, match="predicted errors"):
        ft.Learner(network, **options, whole_sequences=True, segment=2)
    predictor = random_predictor(network)
    xs, ys = jnp.asarray(XS), jnp.asarray(YS)
    with pytest.raises(ValueError, match="with_predicted_errors"):
        ft.gradient(network, None, xs, ys, rule=ft.ONLINE, loss=LOSS, predictor=predictor)
    with pytest.raises(ValueError, match="with_predicted_errors"):
        ft.fit_predictor(network, xs, ys, rule=ft.ONLINE, loss=LOSS)
    with pytest.raises(ValueError, match="with_predicted_errors"):
        ft.alignment(network, xs, ys, rule=ft.ONLINE, loss=LOSS, predictor=predictor)
    with pytest.raises(ValueError, match="fit one to this network"):
        ft.gradient(make("lru", 2), None, xs, ys, rule=rule, loss=LOSS, predictor=predictor)
    with pytest.raises(ValueError, match="passes=0"):
        ft.fit_predictor(network, xs, ys, rule=rule, loss=LOSS, passes=0)


@pytest.mark.parametrize("seed", range(2))
def test_it_improves_the_gradient_and_what_is_carried_is_counted(seed):
    """On new sequences, with what was fitted to others: the copy task at the start."""
    task = Copy(pattern_length=5, padding=1, bits=2)
    cell = ft.LRU.factory(state_size=16)
    network = ft.Network(task.input_size, task.output_size, model_size=16, depth=3, cell=cell, key=jax.random.key(seed))
    rule = ft.ONLINE.with_predicted_errors()
    first, second = (task.batch(seed=0, step=i, size=100) for i in range(2))
    predictor = ft.fit_predictor(network, first.xs, first.ys, rule=rule, loss=task.loss, mask=first.mask)
    options = {"loss": task.loss, "mask": second.mask}
    paper = ft.alignment(network, second.xs, second.ys, rule=ft.ONLINE, **options).total
    ours = ft.alignment(network, second.xs, second.ys, rule=rule, predictor=predictor, **options).total
    assert 1 - ours < (1 - paper) / 4
    # N complex modules, each with F = 2 N + 1 complex virtual weights.
    assert ft.carry_size(network, rule) - ft.carry_size(network, ft.ONLINE) == 3 * 2 * 16 * (2 * 16 + 1)
