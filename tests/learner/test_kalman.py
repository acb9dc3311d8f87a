"""The second-order step and the head by least squares: equations in NumPy, laws, refusals."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kalman_in_numpy import Filter
from tiers import fast, slow

import foretrace as ft
from foretrace._covariance import is_lost, products
from foretrace._engine.correction import corrected
from foretrace._learner.error_moments import init_errors, noted, repetition
from foretrace._learner.nodes import gathered, node_groups

pytestmark = pytest.mark.usefixtures("standard_promotion")

LOSSES = {"numbers": ft.losses.squared_error, "classes": ft.losses.softmax_cross_entropy}
CELLS = (
    ft.SetReset.factory(state_size=2, timescales=(2.0, 20.0)),
    ft.SetReset.factory(state_size=1, products=False),
    ft.Rotation.factory(state_size=2, timescales=(2.0, 20.0)),
)
WIDE = (
    ft.SetReset.factory(state_size=4),
    ft.SetReset.factory(state_size=4, products=False),
    ft.Rotation.factory(state_size=4),
)
RANDOM = np.random.default_rng(0)
T = 40


def make_network(outputs=2, cells=CELLS, inputs=3, depth=1):
    return ft.ModuleNetwork(inputs, outputs, cells=cells, depth=depth, key=jax.random.key(0))


def make_learner(network=None, kind="numbers", optimizer=None, head=True, **options):
    network = make_network() if network is None else network
    optimizer = ft.kalman(warmup=4, delay=2) if optimizer is None else optimizer
    options = {"rule": ft.ONLINE, "loss": LOSSES[kind]} | options
    return ft.Learner(
        network, optimizer=optimizer, head=ft.heads.least_squares() if head else None, **options
    )


def stream(*front, kind="numbers", seed=0, outputs=2):
    """Return rows, labels that depend on a product two rows back, weights and resets."""
    random = np.random.default_rng(seed)
    xs = random.normal(size=(*front, 3))
    past = np.roll(xs[..., 0] * xs[..., 1], 2, axis=-1)
    numbers = np.stack([past, xs[..., 2] + 0.1 * random.normal(size=front)], axis=-1)[..., :outputs]
    ys = numbers if kind == "numbers" else (past > 0).astype(int)
    weights = np.where(random.random(front) < 0.7, random.uniform(0.5, 2, front), 0.0)
    return xs, ys, weights, random.random(front) < 0.05


def steps(learner, state, data, lengths):
    """Learn a stream in chunks; return the state and the outputs."""
    outputs, at, time = [], 0, -1 if learner.batch_size is None else -2
    for length in lengths:
        x, y, mask, reset = (
            np.take(a, range(at, at + length), 0 if time == -1 else 1) for a in data
        )
        state, info = learner.step(
            state, jnp.asarray(x), jnp.asarray(y), mask=jnp.asarray(mask), reset=jnp.asarray(reset)
        )
        outputs.append(info.outputs)
        at += length
    return state, np.concatenate(outputs, axis=0 if time == -1 else 1)


def close(got, want, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        if not jnp.issubdtype(getattr(a, "dtype", float), jax.dtypes.prng_key):
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@cache
def after_a_stream():
    """Return a learner, its state after a stream of numbers, and the stream."""
    learner, data = make_learner(), stream(T)
    return learner, steps(learner, learner.init(), data, [T])[0], data


def learnt(state):
    """Return the parts that a step changes, without the number of calls."""
    return state._replace(step=0)


def filter_errors(found, times=20):
    """Return the moments after the same errors many times, their signs in turn: none repeats."""
    errors = init_errors(*found.shape)
    for sign in (1, -1) * (times // 2):
        errors = noted(errors, sign * jnp.asarray(found), jnp.ones(len(found), bool))
    return errors


@pytest.mark.parametrize(
    ("kind", "streams"), fast([("numbers", None), ("classes", 2), ("numbers", 2)], 2)
)
def test_the_filter_is_its_equations_in_numpy(kind, streams):
    learner = make_learner(kind=kind, batch_size=streams)
    front = (T,) if streams is None else (streams, T)
    xs, ys, weights, resets = stream(*front, kind=kind)
    state, outputs = steps(learner, learner.init(), (xs, ys, weights, resets), [T])
    want = Filter(learner.network, learner.optimizer, learner.head, streams or 1)
    targets = ys if kind == "numbers" else np.eye(2)[ys] - 1 / 2
    rows = [
        a.reshape(streams or 1, T, *a.shape[len(front) :]) for a in (xs, targets, weights, resets)
    ]
    predicted = np.stack([want.row(*(a[:, t] for a in rows)) for t in range(T)], axis=1).reshape(
        outputs.shape
    )
    close(outputs, predicted * (1 if kind == "numbers" else 6))
    assert np.abs(want.U[0] - 10 * np.eye(len(want.U[0]))).max() > 1
    close((state.head.covariance, state.head.weights), (want.P, want.W))
    covariances = [U for group in state.opt_state.covariances for U in group]
    close(covariances, want.U)
    got = [m.theta for m in Filter(state.network, learner.optimizer, learner.head, 1).modules]
    close(got, [module.theta for module in want.modules])
    h = jax.tree.map(lambda leaf: np.asarray(leaf[0]).reshape(streams or 1, -1), state.carry.h)[0]
    for b in range(streams or 1):
        latches, plain, (us, vs) = h
        states = [*latches[b][:, None], *plain[b][:, None], *np.stack([us[b], vs[b]], axis=1)]
        close(states, want.h[b])


@pytest.mark.parametrize("lengths", fast([[1] * T, [7, 1, 12, 20]]))
def test_a_chunk_gives_what_its_rows_give(lengths):
    learner, data = make_learner(), stream(T)
    want, outputs = steps(learner, learner.init(), data, [T])
    got, in_parts = steps(learner, learner.init(), data, lengths)
    close(in_parts, outputs, 1e-12)
    close(learnt(got), learnt(want), 1e-12)
    assert int(want.step) == 1 and int(got.step) == len(lengths)


@pytest.mark.parametrize("size", [1e2, 1e4, 1e7])
def test_large_sensitivities_beside_small_errors_give_finite_steps_in_float32(size):
    """A module that never forgets: outputs depend on it in one direction, above all noise."""
    with jax.enable_x64(False):
        optimizer = ft.kalman(warmup=0)
        J = size * (1 + 1e-3 * RANDOM.normal(size=(3, 1, 1))) * RANDOM.normal(size=(2, 5))
        state, found = optimizer.init([jnp.zeros((2, 5))]), jnp.asarray([[0.02, -0.01, -0.01]])
        arguments = (found, filter_errors(found), jnp.zeros((1, 1)), jnp.ones(1, bool))
        for _ in range(3):
            changes, state = optimizer.update(state, [jnp.asarray(J, jnp.float32)], *arguments)
            assert np.isfinite(changes[0]).all() and np.abs(changes[0]).max() < 0.02
            assert np.linalg.eigvalsh(state.covariances[0]).min() > -1e-5


CASES = {
    "modules": (partial(make_network, depth=2), ft.ONLINE),
    "lru": (lambda outputs: blocks(ft.LRU.factory(state_size=3), outputs), ft.ONLINE),
    "gru": (lambda outputs: blocks(ft.GRU.factory(), outputs), ft.RTRL),
    "depth": (lambda outputs: blocks(ft.MinGRU.factory(), outputs), ft.ONLINE.with_depth(1)),
}


def blocks(cell, outputs=1, **options):
    return ft.Network(
        3, outputs, model_size=4, depth=2, cell=cell, key=jax.random.key(0), **options
    )


@pytest.mark.parametrize("name", fast(["depth", "modules", "lru", "gru"]))
def test_the_step_is_the_dense_filter_on_the_jacobian_of_the_rule(name):
    """With two outputs, and J from `ft.gradient` of each output, from the same carry."""
    make, rule = CASES[name]
    network = make(2)
    optimizer = ft.kalman(warmup=0, delay=1, state_correction=None)
    learner = make_learner(network, optimizer=optimizer, head=False, rule=rule, train_encoder=True)
    state, nodes = learner.init(), node_groups(network, jax.tree.map(lambda _: False, network))
    xs, ys, _, _ = stream(5)
    for x, y in zip(jnp.asarray(xs)[:, None], jnp.asarray(ys)[:, None], strict=True):
        # The gradient of an output is that of its product with a row of the identity.
        rows = [
            ft.gradient(state.network, state.carry, x, one, rule=rule, loss=jnp.vdot)
            for one in jnp.eye(2)[:, None]
        ]
        jacobian = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[row[1] for row in rows])
        jacobian = [np.asarray(J) for J in gathered(nodes, jacobian, axes=1)]
        before, (state, info) = state, learner.step(state, x, y)
        R = float(state.errors.mean_square)
        v = 2 * float(repetition(state.errors.mean_square, state.errors.lagged))
        covariances = list(map(np.asarray, before.opt_state.covariances))
        A = 0.3 * R * v * np.eye(2)
        for U, J in zip(covariances, jacobian, strict=True):
            A += sum(J[:, i] @ U[i] @ J[:, i].T for i in range(len(U)))
        pull = np.linalg.solve(A, np.asarray(y[0] - info.outputs[0]))
        moved = gathered(nodes, jax.tree.map(jnp.subtract, state.network, before.network))
        for U, J, d, after in zip(
            covariances, jacobian, moved, state.opt_state.covariances, strict=True
        ):
            for i in range(len(U)):
                gain = U[i] @ J[:, i].T
                close(d[i], gain @ pull)
                less = gain @ np.linalg.solve(A, gain.T)
                more = np.minimum(3e-4 / v, 10 - np.diag(U[i]))
                close(after[i], U[i] - less + np.diag(more))


EXACT = {
    "modules": (lambda: make_network(depth=1), ft.ONLINE),
    "depth": (lambda: blocks(ft.LRU.factory(state_size=3)), ft.ONLINE.with_depth(2)),
    "depth, dense": (lambda: blocks(ft.GRU.factory()), ft.RTRL.with_depth(2)),
}


@pytest.mark.parametrize("name", fast(list(EXACT), 2))
def test_the_corrected_state_is_that_of_the_new_parameters_to_first_order(name):
    make, rule = EXACT[name]
    network, xs = make(), jnp.asarray(stream(2, 20)[0])
    _, carry = ft.forward(network, ft.init_carry(network, rule, 2), xs, rule=rule)
    change = jax.tree.map(lambda leaf: 1e-6 * jnp.asarray(RANDOM.normal(size=leaf.shape)), network)
    moved = jax.tree.map(jnp.add, network, change)
    _, want = ft.forward(moved, ft.init_carry(network, rule, 2), xs, rule=rule)
    got = corrected(network, change, carry, 0.5, batched=True)
    close(got.h, want.h, 1e-9)
    assert _largest(got.h, carry.h) > 1e-7
    limited = corrected(network, change, carry, 1e-9, batched=True)
    assert 0 < _largest(limited.h, carry.h) <= 1.5e-9


def _largest(a, b):
    """Return the largest difference of two trees."""
    return max(float(abs(x - y).max()) for x, y in zip(*map(jax.tree.leaves, (a, b)), strict=True))


def test_a_row_without_a_label_moves_the_carry_alone():
    learner, state, data = after_a_stream()
    x, y = jnp.asarray(data[0][:3]), jnp.full((3, 2), 7.0)
    after, info = learner.step(state, x, y, mask=jnp.zeros(3, bool))
    outputs, predicted = learner.predict(state, x)
    close(info.outputs, outputs, 1e-12)
    close(after.carry, predicted.carry, 1e-12)
    close(learnt(after)._replace(carry=0), learnt(state)._replace(carry=0), 0)
    assert float(info.loss) == 0


@pytest.mark.full
def test_a_reset_makes_two_sequences():
    learner, state, data = after_a_stream()
    x, y = jnp.asarray(data[0][:4]), jnp.asarray(data[1][:4])
    cut, _ = learner.step(state, x, y, reset=jnp.arange(4) == 0)
    fresh, _ = learner.step(state._replace(carry=learner.init().carry), x, y)
    close(cut, fresh, 1e-12)
    ended, _ = learner.step(state, x, y, end=True)
    close(ended.carry, learner.init().carry, 0)


@pytest.mark.full
def test_a_stream_without_labels_beside_another_changes_nothing():
    learner, pair = make_learner(), make_learner(batch_size=2)
    xs, ys, weights, resets = stream(T)
    other = stream(T, seed=5)
    both = [np.stack([a, b]) for a, b in zip((xs, ys, weights, resets), other, strict=True)]
    both[2][1] = 0
    want, outputs = steps(learner, learner.init(), (xs, ys, weights, resets), [T])
    got, in_pair = steps(pair, pair.init(), both, [T])
    close(in_pair[0], outputs, 1e-10)
    close((got.network, got.opt_state, got.head), (want.network, want.opt_state, want.head), 1e-10)
    close(jax.tree.map(lambda leaf: leaf[:, 0], got.carry), want.carry, 1e-10)


@pytest.mark.full
def test_jit_changes_nothing():
    network = make_network(1, cells=(ft.SetReset.factory(state_size=1),))
    learner, data = make_learner(network, optimizer=ft.kalman(warmup=0)), stream(3, outputs=1)
    want, _ = steps(learner, learner.init(), data, [3])
    with jax.disable_jit():
        got, _ = steps(learner, learner.init(), data, [3])
    close(got, want, 1e-12)


@pytest.mark.parametrize("name", ["y", "mask"])
def test_what_no_row_may_hold_leaves_the_state_as_it_was(name):
    learner, state, data = after_a_stream()
    fine = dict(zip(("x", "y", "mask"), map(jnp.asarray, data), strict=False))
    wrong = {"y": fine["y"].at[3, 1].set(jnp.nan), "mask": fine["mask"].at[3].set(-0.5)}
    step = jax.jit(lambda state, row: learner.step(state, **row))
    after, info = step(state, fine | {"mask": jnp.ones(T), name: wrong[name]})
    assert not bool(info.accepted) and int(after.skipped) == 1
    close(after._replace(skipped=state.skipped), state, 0)
    assert bool(step(state, fine)[1].accepted)


@pytest.mark.full
def test_an_optax_optimiser_under_least_squares_gets_the_gradient_with_the_head_held():
    learner = make_learner(optimizer=optax.sgd(0.1))
    state, _ = steps(learner, learner.init(), stream(T), [T])
    x, y = (jnp.asarray(a[:1]) for a in stream(T, seed=3)[:2])
    read = ft.ModuleNetwork(3, 2, cells=CELLS, key=jax.random.key(0))
    object.__setattr__(read, "layers", state.network.layers)
    object.__setattr__(read.decoder, "weight", state.head.weights[1:].T)
    object.__setattr__(read.decoder, "bias", state.head.weights[0])
    loss, grads, _ = ft.gradient(
        read, state.carry, x, y, rule=ft.ONLINE, loss=ft.losses.squared_error
    )
    after, info = learner.step(state, x, y)
    close(info.loss, loss, 1e-12)
    want = jax.tree.map(lambda p, g: p - 0.1 * g, state.network.layers, grads.layers)
    close(after.network.layers, want, 1e-12)
    close(after.network.decoder, state.network.decoder, 0)


def test_a_network_of_blocks_learns_with_the_filter_and_its_decoder():
    """Every unit is a node; the encoder is frozen, as by default at every row."""
    learner = make_learner(
        blocks(ft.LRU.factory(state_size=3)), optimizer=ft.kalman(warmup=1), head=False
    )
    state, _ = steps(learner, learner.init(), stream(T, outputs=1), [T])
    sizes = {group.shape for group in state.opt_state.covariances}
    # Modules of an LRU, its readout and D, norms are held, rows of the GLU and of the decoder.
    assert sizes == {(6, 11, 11), (8, 7, 7), (16, 5, 5), (1, 5, 5)}
    moved = jax.tree.map(lambda p, q: bool((p != q).any()), state.network, learner.network)
    assert moved.blocks.cell.nu_log and moved.blocks.glu.linear.weight and moved.decoder.linear.bias
    assert not moved.encoder.weight and not moved.blocks.norm.scale


def drive(labels, seed=0):
    """Run filter and head alone on collinear features and Jacobians, and errors that repeat."""
    optimizer, head = ft.kalman(warmup=0, delay=20), ft.heads.least_squares()
    nodes = optimizer.init([jnp.zeros((2, 3))])

    def one(state, key):
        nodes, squares, errors, e, lowest = state
        z = jax.random.normal(key, (6,))
        # One feature is the sum of two others, and nothing ever reads one parameter.
        e = 0.95 * e + z[0] * jnp.where(z[1] > 3, 30.0, 1.0)
        J = jnp.stack([z[1:4], jnp.array([z[4], 2 * z[4], 0.0])])[None]
        f = jnp.stack([z[4], z[5], z[4] + z[5]])[None]
        found, known = e[None, None], jnp.ones(1, bool)
        errors = noted(errors, found, known)
        _, nodes = optimizer.update(nodes, [J], found, errors, head.variance(squares, f), known)
        squares = head.learn(squares, f, found - head.scores(squares, f), jnp.ones(1))
        lowest = jnp.minimum(lowest, jnp.linalg.eigvalsh(nodes.covariances[0]).min())
        return (nodes, squares, errors, e, lowest), None

    start = (nodes, head.init(3, 1), init_errors(1, 1), jnp.zeros(()), jnp.zeros(()))
    run = jax.jit(
        lambda state: jax.lax.scan(one, state, jax.random.split(jax.random.key(seed), labels))[0]
    )
    return run(start)


@pytest.mark.parametrize("labels", [*fast([100_000, 1_000_000]), slow(10_000_000)])
def test_covariances_stay_symmetric_bounded_and_positive_in_float32(labels):
    with jax.enable_x64(False):
        nodes, squares, _, _, lowest = drive(labels)
    U, P = np.asarray(nodes.covariances[0]), np.asarray(squares.covariance)
    assert U.dtype == P.dtype == np.float32
    assert np.array_equal(U, U.transpose(0, 2, 1)) and np.array_equal(P, P.T)
    assert (
        np.diagonal(U, axis1=1, axis2=2).max() <= 10 * (1 + 1e-5) and np.diag(P).max() <= 1 + 1e-5
    )
    assert float(lowest) > -1e-5 and np.linalg.eigvalsh(P).min() > -1e-5
    # What is excited is known, what is not is as unknown as at first.
    assert U[0, 0, 0] < 1 and abs(U[1, 2, 2] - 10) < 1e-4


def test_a_head_begins_again_where_its_covariance_is_none():
    """Before, its negative variance made every later chunk NaN, which was refused."""
    learner = make_learner(optimizer=ft.kalman())
    state = learner.init()
    P = state.head.covariance.at[0, 1].set(3.0).at[1, 0].set(3.0)
    state = state._replace(head=state.head._replace(covariance=P))
    xs, _, _, _ = stream(T)
    xs = jnp.asarray(xs).at[0].set(jnp.array([-1.0, 0.0, 0.0]))
    for _ in range(3):
        state, info = learner.step(state, xs, xs[:, :2])
        assert bool(info.accepted) and int(state.skipped) == 0
    assert np.linalg.eigvalsh(state.head.covariance).min() > 0
    assert float(info.loss) < 0.1


@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-6, 1e-3, 1.0]), st.integers(1, 3))
def test_rounding_does_not_take_a_covariance_for_none(seed, size, rows):
    """Of features of any sizes, of which some are nearly equal, and known to many digits."""
    with jax.enable_x64(False):
        random, n = np.random.default_rng(seed), 12
        mix = random.normal(size=(3, n)) + size * random.normal(size=(3, n))
        F = random.normal(size=(200, 3)) @ mix + size * random.normal(size=(200, n))
        scale = 10 ** random.uniform(-6, 6, n)
        P = np.linalg.inv(np.eye(n) + F.T @ F) / scale / scale[:, None]
        f = jnp.asarray(F[:rows] * scale, jnp.float32)
        P = jnp.asarray((P + P.T) / 2, jnp.float32)
        assert not bool(is_lost(P, f, products(P, f)))
        wrong = P.at[0, 1].set(3 * jnp.sqrt(P[0, 0] * P[1, 1]))
        wrong = wrong.at[1, 0].set(wrong[0, 1])
        f = jnp.zeros((1, n)).at[0, :2].set(jnp.array([1.0, -1.0]) / jnp.sqrt(jnp.diag(P)[:2]))
        assert bool(is_lost(wrong, f, products(wrong, f)))


@pytest.mark.full
def test_columns_of_very_different_sizes_are_learned_for_ever_in_float32():
    with jax.enable_x64(False):
        learner = make_learner(
            make_network(1, WIDE),
            optimizer=ft.kalman(),
        )
        state, random, value = learner.init(), np.random.default_rng(1), 0.0
        for _ in range(150):
            z, ys = random.normal(size=(1000, 3)).astype(np.float32), []
            for row in z:
                value = row[2] if row[0] > 1 and row[1] > 1 else value
                ys.append([value])
            xs = z * np.array([1e-6, 1, 1e6], np.float32)
            state, info = learner.step(state, jnp.asarray(xs), jnp.asarray(ys, jnp.float32))
            assert bool(info.accepted)
        assert float(info.loss) / 1000 < 0.4


@pytest.mark.full
@pytest.mark.parametrize("labels", [200_000])
def test_many_nearly_equal_features_leave_covariances_positive_in_float32(labels):
    """Full latches are nearly equal: directions far below the rounding of the largest."""
    with jax.enable_x64(False):
        head, optimizer = ft.heads.least_squares(), ft.kalman(warmup=0, delay=50)
        mix = jax.random.normal(jax.random.key(1), (3, 40))

        def one(state, key):
            squares, nodes, errors, z = state
            slow, noise = jax.random.split(key)
            z = 0.99 * z + 0.1 * jax.random.normal(slow, (3,))
            f = 10 * jnp.tanh(3 * z @ mix + 1e-3 * jax.random.normal(noise, (40,)))[None]
            found, known = z[None, :1] + 0.1 * jax.random.normal(noise, (1, 1)), jnp.ones(1, bool)
            error = found - head.scores(squares, f)
            errors = noted(errors, error, known)
            spread = head.variance(squares, f)
            _, nodes = optimizer.update(nodes, [f[:, None]], error, errors, spread, known)
            return (head.learn(squares, f, error, jnp.ones(1)), nodes, errors, z), None

        start = (
            head.init(40, 1),
            optimizer.init([jnp.zeros((1, 40))]),
            init_errors(1, 1),
            jnp.zeros(3),
        )
        keys = jax.random.split(jax.random.key(0), labels)
        squares, nodes, _, _ = jax.jit(lambda start: jax.lax.scan(one, start, keys)[0])(start)
    assert np.linalg.eigvalsh(np.float64(squares.covariance)).min() > -1e-6
    assert np.linalg.eigvalsh(np.float64(nodes.covariances[0])).min() > -1e-5
    assert np.abs(squares.weights).max() < 10
