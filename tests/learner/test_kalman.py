"""The second-order step and the head by least squares: equations in NumPy, laws, bounds."""

import operator
from functools import cache, partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import filled, make_network
from tiers import fast

import foretrace as ft
from foretrace._engine.correction import corrected
from foretrace._learner.error_moments import Errors, init_errors, noted
from foretrace._learner.kalman import KalmanState
from foretrace._learner.nodes import gathered, node_groups, scattered
from foretrace.heads import HeadState

pytestmark = pytest.mark.usefixtures("standard_promotion")

LOSSES = {"numbers": ft.losses.squared_error, "classes": ft.losses.softmax_cross_entropy}
CELLS = (
    ft.SetReset.factory(state_size=2, timescales=(2.0, 20.0)),
    ft.Rotation.factory(state_size=2, timescales=(2.0, 20.0)),
    ft.SetReset.factory(state_size=1, products=False),
)
RANDOM = np.random.default_rng(0)
T = 40
RATE = 0.1


@cache
def modules(depth=1):
    """Return the first two cells, or the last two in each of two layers."""
    options = {"cells": CELLS[depth - 1 :][:2], "depth": depth, "key": jax.random.key(0)}
    return filled(lambda: ft.ModuleNetwork(3, 2, **options))


blocks = partial(make_network, depth=2, inputs=3, outputs=2)


def stream(*front, kind="numbers"):
    """Return rows, labels that depend on a product two rows back, weights and resets."""
    random = np.random.default_rng(0)
    xs = random.normal(size=(*front, 3))
    past = np.roll(xs[..., 0] * xs[..., 1], 2, axis=-1)
    numbers = np.stack([past, xs[..., 2] + 0.1 * random.normal(size=front)], axis=-1)
    ys = numbers if kind == "numbers" else (past > 0).astype(int)
    weights = np.where(random.random(front) < 0.7, random.uniform(0.5, 2, front), 0.0)
    return xs, ys, weights, random.random(front) < 0.05


def steps(learner, state, data, lengths):
    """Learn a stream in chunks; return the state and the outputs."""
    outputs = []
    for end, length in zip(np.cumsum(lengths), lengths, strict=True):
        x, y, mask, reset = (jnp.asarray(a[end - length : end]) for a in data)
        state, info = learner.step(state, x, y, mask=mask, reset=reset)
        outputs.append(info.outputs)
    return state, np.concatenate(outputs)


def close(got, want, tolerance=1e-10):
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def probability(output, unit):
    return jnp.vdot(jax.nn.softmax(output), unit)


in_numpy = partial(jax.tree.map, np.asarray)


def moments(errors, found, known):
    """Return the moments of all errors after those of one row."""
    square, lagged, last, count = map(np.asarray, errors)
    count = count + known.sum()
    rate = known.sum() / np.clip(count, 1, 300)
    square = square + rate * ((found[known] ** 2).mean() - square)
    lagged = lagged + rate * ((found[known] * last[known]).mean() - lagged)
    return Errors(square, lagged, np.where(known[:, None], found, last), count)


def least_squares(head, before, F, e, labels):
    """Return the head after the rows F with errors e, and `F P F^T`."""
    P, W = map(np.asarray, before)
    G = F @ P @ F.T
    gain = P @ F.T @ np.linalg.inv(np.eye(len(F)) + G)
    P = P - gain @ F @ P
    scale = np.sqrt(np.minimum(head.forget**-labels, head.prior / np.diag(P)))
    return HeadState(scale[:, None] * P * scale, W + gain @ e), G


def filtered(o, covariances, J, e, errors, G):
    """Return the change of each group of nodes and its covariances after a row."""
    R = max(errors.mean_square, 1e-6)
    rho = np.clip(errors.lagged / R, 0, 0.99)
    v = (1 + rho) / (1 - rho) * (1 + o.delay)
    A = np.kron(o.measurement_noise * np.eye(len(G)) + G, np.eye(e.shape[1])) * R * v
    gains = [np.einsum("mpq,rmq->mpr", *pair) for pair in zip(covariances, J, strict=True)]
    A = A + sum(np.einsum("rmp,mps->rs", *pair) for pair in zip(J, gains, strict=True))
    changes, after = [gain @ np.linalg.solve(A, e.ravel()) for gain in gains], []
    for U, gain in zip(covariances, gains, strict=True):
        more = np.minimum(o.process_noise / v, o.prior - np.diagonal(U, axis1=1, axis2=2))
        less = gain @ np.linalg.solve(A, gain.transpose(0, 2, 1))
        after.append(U - less + more[..., None] * np.eye(len(U[0])))
    return changes, tuple(after)


def by_equations(learner, prediction):
    """Return the function of a state and a row of B streams, by dense matrices.

    It returns what they predict, and the state after the row.
    """
    o, streams = learner.optimizer, None if learner.batch_size is None else 1

    @jax.jit
    def predicted(network, carry, xs, resets):
        """Return the predictions, the gradient of each, and the carry after the row."""

        def of_stream(carry, x, reset):
            arguments = {"rule": learner.rule, "loss": prediction, "reset": reset[None]}
            of = partial(ft.gradient, network, carry, x[None], **arguments)
            values, grads, ends = jax.vmap(of)(jnp.eye(network.output_size)[:, None])
            return values, grads, jax.tree.map(lambda leaf: leaf[0], ends)

        values, grads, end = jax.vmap(of_stream, (streams, 0, 0), (0, 0, 1))(carry, xs, resets)
        end = end if streams else jax.tree.map(lambda leaf: leaf[:, 0], end)
        return values, jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), grads), end

    held = jax.tree.map(lambda _: False, learner.network)
    if learner.head is not None:
        held = eqx.tree_at(lambda n: n.decoder, held, jax.tree.map(lambda _: True, held.decoder))
    nodes = node_groups(learner.network, held)
    gather = jax.jit(partial(gathered, nodes, axes=1))

    @jax.jit
    def changed(network, changes, carry):
        change = scattered(nodes, changes, network)
        if o.state_correction is not None:
            batched = {"batched": streams is not None}
            carry = corrected(network, change, carry, o.state_correction, **batched)
        return jax.tree.map(jnp.add, network, change), carry

    def row(before, xs, targets, weights, resets):
        network = before.network
        if before.head is not None:  # in the place of the decoder
            where, W = operator.attrgetter("decoder.bias", "decoder.weight"), before.head.weights
            network = eqx.tree_at(where, network, (W[0], W[1:].T))
        values, grads, carry = in_numpy(predicted(network, before.carry, xs, resets))
        after, known, root = before._replace(carry=carry), weights > 0, np.sqrt(weights)
        if not known.any():
            return values, after
        limit = 3 * np.sqrt(max(before.errors.mean_square, 1e-6))
        limit = limit if before.errors.num_labels >= 10 else np.inf
        found = np.where(known[:, None], np.clip(targets - values, -limit, limit), 0.0)
        errors, e = moments(before.errors, found, known), root[:, None] * found
        G = 0 * np.diag(root)
        if learner.head is not None:
            # The gradient of the first prediction by the decoder holds the features.
            features = grads.decoder.weight[:: values.shape[1], 0]
            F = root[:, None] * np.insert(features, 0, 1.0, axis=1)
            head, G = least_squares(learner.head, before.head, F, e, float(known.sum()))
            after = after._replace(head=head)
        after = after._replace(errors=errors)
        if not isinstance(o, ft.kalman):  # plain gradient descent
            slope = -RATE * (weights[:, None] * (values - targets)).ravel() / values.size
            change = jax.tree.map(lambda g, no: (not no) * np.tensordot(slope, g, 1), grads, held)
            return values, after._replace(network=jax.tree.map(np.add, before.network, change))
        if errors.num_labels <= o.warmup:
            return values, after
        J = np.repeat(root, values.shape[1])[:, None, None]
        J = [J * np.asarray(each) for each in gather(grads)]
        changes, covariances = filtered(o, before.opt_state.covariances, J, e, errors, G)
        network, carry = changed(before.network, changes, carry)
        learned = {"network": network, "opt_state": KalmanState(covariances), "carry": carry}
        return values, after._replace(**learned)

    return row


UNCORRECTED = ft.kalman(warmup=0, state_correction=None)
WITHOUT_HEAD = {"head": None, "train_encoder": True}
CASES = {
    "classes": {"kind": "classes", "batch_size": 2},
    "blocks": {"network": blocks, **WITHOUT_HEAD},
    "numbers": {},
    "depth": {"network": partial(blocks, "mingru"), "rule": "online(depth=1)", **WITHOUT_HEAD},
    "probabilities": {"kind": "classes", **WITHOUT_HEAD},
    "modules": {"network": partial(modules, 2), "optimizer": UNCORRECTED, "head": None},
    "dense": {"network": partial(blocks, "tanh"), "rule": ft.RTRL, **WITHOUT_HEAD},
    "an Optax optimiser": {"optimizer": optax.sgd(RATE), "batch_size": 2},
}


@cache
def learner_of(name):
    options = {"optimizer": ft.kalman(warmup=4, delay=2), "head": ft.heads.least_squares()}
    options |= {"rule": ft.ONLINE, "network": modules, "kind": "numbers"} | CASES[name]
    return ft.Learner(options.pop("network")(), loss=LOSSES[options.pop("kind")], **options)


@pytest.mark.parametrize("name", fast(list(CASES)))
def test_a_row_is_learned_by_the_equations_in_numpy(name):
    """J from one gradient for each prediction, under the same rule and from the same carry."""
    learner, kind = learner_of(name), CASES[name].get("kind", "numbers")
    streams = learner.batch_size
    prediction = jnp.vdot if kind == "numbers" or learner.head is not None else probability
    xs, ys, weights, resets = stream(streams or 1, 25, kind=kind)
    targets = ys if kind == "numbers" else np.eye(2)[ys] - (learner.head is not None) / 2
    state, learned = learner.init(), by_equations(learner, prediction)
    for t in range(xs.shape[1]):
        row = [a[:, t] for a in (xs, targets, weights, resets)]
        values, want = learned(in_numpy(state._replace(key=None)), *row)
        row = [a[:, t, None] if streams else a[0, t, None] for a in (xs, ys, weights, resets)]
        x, y, mask, reset = map(jnp.asarray, row)
        state, info = learner.step(state, x, y, mask=mask, reset=reset)
        close(state._replace(key=None), want._replace(step=t + 1))
        if prediction is jnp.vdot:
            sharpness = 1 if kind == "numbers" else learner.head.sharpness
            close(np.reshape(info.outputs, values.shape), sharpness * values)
    assert _largest(state.network, learner.network) > 1e-3


@pytest.mark.full
def test_a_chunk_gives_what_its_rows_give():
    learner, data = learner_of("numbers"), stream(T)
    want, outputs = steps(learner, learner.init(), data, [T])
    got, in_parts = steps(learner, learner.init(), data, [1] * T)
    close(in_parts, outputs, 1e-12)
    close(got._replace(step=1, key=None), want._replace(key=None), 1e-12)
    assert int(got.step) == T


EXACT = {
    "depth": (partial(blocks, "lru"), ft.ONLINE.with_depth(2)),
    "modules": (modules, ft.ONLINE),
    "depth, dense": (partial(blocks, "gru"), ft.RTRL.with_depth(2)),
}


@pytest.mark.parametrize("name", fast(list(EXACT), 0))
def test_the_corrected_state_is_that_of_the_new_parameters_to_first_order(name):
    make, rule = EXACT[name]
    network, xs = make(), jnp.asarray(stream(2, 20)[0])
    _, carry = ft.forward(network, ft.init_carry(network, rule, 2), xs, rule=rule)
    change = jax.tree.map(lambda leaf: 1e-6 * RANDOM.normal(size=leaf.shape), network)
    moved = jax.tree.map(lambda leaf, by: jnp.asarray(np.asarray(leaf) + by), network, change)
    _, want = ft.forward(moved, ft.init_carry(network, rule, 2), xs, rule=rule)
    correct = partial(corrected, network, change, carry, batched=True)
    got, limited = jax.jit(lambda: [correct(limit) for limit in (0.5, 1e-9)])()
    close(got.h, want.h, 1e-9)
    assert _largest(got.h, carry.h) > 1e-7
    assert 0 < _largest(limited.h, carry.h) <= 1.5e-9


def _largest(a, b):
    """Return the largest difference of two trees."""
    pairs = zip(*map(jax.tree.leaves, (a, b)), strict=True)
    return max(np.abs(np.asarray(x) - np.asarray(y)).max() for x, y in pairs)


def test_every_unit_of_a_network_of_blocks_is_a_node():
    options = {"rule": ft.ONLINE, "optimizer": ft.kalman(), "loss": LOSSES["numbers"]}
    state = jax.eval_shape(ft.Learner(blocks(outputs=1), **options).init)
    sizes = {group.shape for group in state.opt_state.covariances}
    # Modules of an LRU, its readout and D, norms are held, rows of the GLU and of the decoder.
    assert sizes == {(6, 11, 11), (8, 7, 7), (16, 5, 5), (1, 5, 5)}


def collinear(past, key):
    """One feature is the sum of two others, nothing reads one parameter, and errors repeat."""
    z = jax.random.normal(key, (6,))
    y = 0.95 * past + z[0] * jnp.where(z[1] > 3, 30.0, 1.0)
    J = jnp.stack([z[1:4], jnp.array([z[4], 2 * z[4], 0.0])])
    return y, y[None, None], jnp.stack([z[4], z[5], z[4] + z[5]])[None], J[None]


def drive(labels):
    """Run filter and head alone; return them and the lowest eigenvalue of the covariances."""
    optimizer, head, past = ft.kalman(warmup=0, delay=20), ft.heads.least_squares(), jnp.zeros(())
    _, _, f, J = collinear(past, jax.random.key(0))

    def one(state, key):
        nodes, squares, errors, past, lowest = state
        past, y, f, J = collinear(past, key)
        found, known = y - head.scores(squares, f), jnp.ones(1, bool)
        errors = noted(errors, found, known)
        _, nodes = optimizer.update(nodes, [J], found, errors, head.variance(squares, f), known)
        squares = head.learn(squares, f, found, jnp.ones(1))
        lowest = jnp.minimum(lowest, jnp.linalg.eigvalsh(nodes.covariances[0]).min())
        return (nodes, squares, errors, past, lowest), None

    nodes, squares = optimizer.init([jnp.zeros(J.shape[1:])]), head.init(f.shape[1], 1)
    start, keys = (nodes, squares, init_errors(1, 1), past, 0.0), jax.random.key(0)
    keys = jax.random.split(keys, labels)
    nodes, squares, *_, lowest = jax.jit(lambda start: jax.lax.scan(one, start, keys)[0])(start)
    return np.asarray(nodes.covariances[0]), jax.tree.map(np.asarray, squares), float(lowest)


@pytest.mark.parametrize("labels", fast([100_000, 1_000_000]))
def test_covariances_stay_symmetric_bounded_and_positive_in_float32(labels):
    with jax.enable_x64(False):
        U, squares, lowest = drive(labels)
    P = squares.covariance
    assert U.dtype == P.dtype == np.float32
    assert np.array_equal(U, U.transpose(0, 2, 1)) and np.array_equal(P, P.T)
    assert np.diagonal(U, axis1=1, axis2=2).max() <= 10 * (1 + 1e-5)
    assert np.diag(P).max() <= 1 + 1e-5
    assert min(lowest, *(np.linalg.eigvalsh(np.float64(each)).min() for each in (*U, P))) > -1e-5
    # What is excited is known, what is not is as unknown as at first.
    assert U[0, 0, 0] < 1 and abs(U[1, 2, 2] - 10) < 1e-4


def test_a_head_begins_again_where_its_covariance_is_none():
    """Before, its negative variance made every later chunk NaN, which was refused."""
    learner = learner_of("numbers")
    state = learner.init()
    P = np.array(state.head.covariance)
    P[0, 1] = P[1, 0] = 3
    state = state._replace(head=state.head._replace(covariance=jnp.asarray(P)))
    xs, *_ = stream(T)
    xs[0] = [-1, 0, 0]
    for _ in range(3):
        arguments = {"mask": jnp.ones(T), "reset": jnp.zeros(T, bool)}
        state, info = learner.step(state, jnp.asarray(xs), jnp.asarray(xs[:, :2]), **arguments)
        assert bool(info.accepted) and int(state.skipped) == 0
    assert np.linalg.eigvalsh(state.head.covariance).min() > 0
    assert float(info.loss) < 0.1
