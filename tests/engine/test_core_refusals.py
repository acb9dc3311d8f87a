"""Refusals of the core: a call, and the words that name argument, given and expected value."""

import re
import warnings
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import LOSS, filled, make_network

import foretrace as ft

pytestmark = pytest.mark.usefixtures("without_shape_checks", "standard_promotion")

KEY, C = jax.random.key(0), 4
XS, YS = jnp.ones((C, 2)), jnp.zeros(C, int)
GRU, SET_RESET = ft.GRU.factory(), ft.SetReset.factory(state_size=2)
SQUARED, IGNORING = ft.losses.squared_error, ft.losses.SoftmaxCrossEntropy(ignore_label=-1)
DEEP, SAMPLED = "online(depth=1)", "online(depth=1, modules=2)"
BOUNDED = ft.bounded(optax.sgd(1.0))


def network():
    return make_network("gru", 2)


def gradient(carry=None, of=None, xs=XS, ys=YS, **arguments):
    of = network() if of is None else of
    return ft.gradient(of, carry, xs, ys, **{"rule": ft.ONLINE, "loss": LOSS} | arguments)


def made(**arguments):
    return ft.Network(2, 3, **{"model_size": 4, "depth": 2, "cell": GRU, "key": KEY} | arguments)


def modules(*cells):
    return filled(lambda: ft.ModuleNetwork(2, 3, cells=cells, key=KEY))


def with_carry_of(rule=ft.ONLINE, batch_size=None, data=None, cumulative_mean=False, **options):
    """Return the gradient of a network under the online rule with the carry of another one."""
    carry = filled(lambda: ft.init_carry(made(**options), rule, batch_size))
    of = make_network("gru", 2, cumulative_mean=cumulative_mean)
    return gradient(carry, of, rule=rule if cumulative_mean else ft.ONLINE, **data or {})


def learner(of=None, **options):
    of = make_network(depth=2) if of is None else of
    options = {"rule": ft.ONLINE, "optimizer": optax.sgd(0.1), "loss": LOSS} | options
    return ft.Learner(of, warn=False, **options)


def of_rows(of=None, **options):
    """Return a learner of numbers by the second-order step and least squares."""
    options = {"optimizer": ft.kalman(), "head": ft.heads.least_squares()} | options
    return learner(modules(SET_RESET) if of is None else of, **{"loss": SQUARED} | options)


def step(one=None, x=XS, y=YS, **arguments):
    one = learner() if one is None else one
    return one.step(jax.eval_shape(one.init), x, y, **arguments)


def row(**arguments):
    return step(of_rows(), **{"y": jnp.ones((C, 3))} | arguments)


SERIES = jnp.ones((12, 5, 1))


def fit(ys=SERIES, xs=SERIES, **options):
    of = make_network("mingru", 1, inputs=1, outputs=1)
    options = {"loss": SQUARED, "progress": False, "key": KEY} | options
    return ft.fit(of, xs() if callable(xs) else xs, ys, **options)


def table(**columns):
    return pytest.importorskip("pandas").DataFrame(columns)


class Flat(ft.GRU):
    def coefficients(self):
        theta = super().coefficients()
        return theta._replace(feedforward=theta.feedforward | {"gain": self.b_hn[0]})


class NarrowCell(ft.LRU):
    @property
    def output_size(self):
        return 2


BATCH = {"xs": jnp.ones((3, C, 2)), "ys": jnp.zeros((3, C), int)}
SEQUENCES = {"xs": jnp.ones((3, 6, 2)), "ys": jnp.zeros(3, int)}
OTHER = "carry does not fit: expected init_carry(network, ONLINE"

DATA = {
    "xs has shape (4, 3), expected (C, 2) for one stream or (B, C, 2)": {"xs": jnp.ones((C, 3))},
    "at least one step": {"xs": jnp.ones((0, 2)), "ys": jnp.zeros(0, int)},
    "xs is int64, expected floating point; encode symbols first": {"xs": XS.astype(int)},
    "xs is a list, expected an array: jnp.asarray(xs)": {"xs": [[1.0, 2.0]] * C},
    "xs holds nan at (1, 0) (1 values": {"xs": XS.at[1, 0].set(jnp.nan)},
    "ys has shape (5,), expected (4,) and then": {"ys": jnp.zeros(C + 1, int)},
    "y must hold integer classes": {"ys": jnp.zeros(C)},
    "3 logits cannot be 2 outputs": {"ys": jnp.zeros((C, 2), int)},
    "y has shape (2,), expected that of the output, (3,)": {
        "ys": jnp.zeros((C, 2)),
        "loss": SQUARED,
    },
    "ys holds the label 3 (1 labels are no class), expected 0 to 2": {"ys": jnp.arange(C)},
    "ys holds the label -1 (1 labels": {"ys": YS - 1, "mask": jnp.array([0.0, 1, 0, 0])},
    "mask has shape (4,), expected (3, 4)": BATCH | {"mask": jnp.ones(C)},
    "mask is int64, expected booleans or floating-point weights": {"mask": jnp.ones(C, int)},
    "mask holds inf at (3,)": {"mask": jnp.ones(C, jnp.bfloat16).at[3].set(jnp.inf)},
    "reset has shape (5,), expected (4,)": {"reset": jnp.zeros(C + 1, bool)},
    "reset is float64, expected booleans": {"reset": jnp.zeros(C)},
    "needs last=True": SEQUENCES,
    "ys has shape (2,), expected (3,)": SEQUENCES | {"ys": jnp.zeros(2, int), "last": True},
    "loss='mse' must be a function loss(output, y)": {"loss": "mse"},
    "loss returned an array float64[3] for one step": {"loss": lambda output, y: output},
    "gradient(key=0) must be a PRNG key, such as jax.random.key(0)": {"key": 0},
    "rule='rtlr' is unknown; choose one of BPTT": {"rule": "rtlr"},
}
"""Arguments of `gradient`, by the words that name their fault."""

CALLS = [
    # What a network runs on.
    (
        lambda: ft.forward(network(), None, BATCH["xs"], key=jax.random.split(KEY)),
        "expected one key, or (3,)",
    ),
    (
        lambda: gradient(of=jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), network())),
        "run: network.encoder.weight is bfloat16, expected float32 or float64",
    ),
    (partial(with_carry_of, "bptt", cumulative_mean=True), "runs on whole sequences only"),
    (lambda: ft.alignment(network(), XS, YS, rule="online", loss=LOSS, chunk=0), "chunk=0) must"),
    (lambda: ft.operation_count(network(), ft.ONLINE, 0), "length=0"),
    (
        lambda: ft.alignment(modules(SET_RESET), XS, YS, rule="online", loss=LOSS),
        "alignment(network=ModuleNetwork) must be a foretrace.Network",
    ),
    (
        lambda: ft.to_torch(modules(SET_RESET), "model.py"),
        "ModuleNetwork) must be a foretrace.Network",
    ),
    # Carries of others.
    (partial(with_carry_of, ft.RTRL), f"{OTHER}, batch_size=None"),
    (partial(with_carry_of, cell=ft.LRU.factory(state_size=4)), f"{OTHER}, batch_size=None"),
    (partial(with_carry_of, data=BATCH), f"{OTHER}, batch_size=3"),
    (lambda: ft.init_carry(network(), "online", 0), "batch_size=0) must be at least 1, or None"),
    (partial(ft.init_carry, "gru", "online"), "init_carry(network=str) must be a foretrace.Netw"),
    # Networks and their cells.
    (partial(made, cell=Flat.factory()), "['gain'] has shape (), expected the module axis (4)"),
    (lambda: made(cell=ft.GRU(4, key=KEY)), "cell is a GRU, expected a function make"),
    (partial(made, cell=eqx.nn.GRUCell), "cell=GRUCell cannot be called"),
    (partial(made, cell=partial(eqx.nn.GRUCell, 4)), "makes a GRUCell, which is not a cell of fo"),
    (partial(made, cell="lru"), "cell is 'lru', expected a function make"),
    (partial(made, cell=NarrowCell.factory(state_size=3)), "NarrowCell puts out 2 features where"),
    (partial(made, key=jax.random.split(KEY)), "Network(key=an array key<fry>[2]) must be a PRNG"),
    (lambda: network().block(2), "block(2): the network has depth 2"),
    (modules, "needs at least one"),
    # What a call of a learner is given.
    (partial(step, x=BATCH["xs"], y=BATCH["ys"]), "batch_size=None"),
    (partial(step, y=YS[0], last=True), "whole_sequences=True"),
    (partial(row, y=jnp.full((C, 3), jnp.nan)), "y holds nan"),
    (partial(row, y=jnp.zeros(C)), "squared_error: y has shape ()"),
    (partial(row, mask=jnp.array([1, -0.5, 1, 1])), "mask holds -0.5 at (1,), expected weights"),
    (lambda: learner().step(network(), XS, YS), "state is a Network, expected what init()"),
    # Options of a learner.
    (partial(learner, accumulate=True, whole_sequences=True), "whole_sequences=True has only one"),
    (partial(learner, accumulate=True, mean_loss=True), "mean_loss=True divides"),
    (partial(learner, segment=3, whole_sequences=True, rule=DEEP), "rules without credit in depth"),
    (partial(learner, head="squares"), "must be a head, such as ft.heads.least_squares"),
    (lambda: learner(network(), rule="rtrl(depth=1, modules=2)"), "independent modules"),
    (partial(learner, rule=SAMPLED, whole_sequences=True), "on whole sequences nothing is carried"),
    # Options that do not go with rows.
    (partial(of_rows, mean_loss=True), "Learner(mean_loss=…) does not go with ft.kalman"),
    (partial(of_rows, loss=ft.losses.huber), "use ft.losses.squared_error for numbers"),
    (partial(of_rows, loss=IGNORING), "without a label to ignore"),
    (partial(of_rows, rule=DEEP), "between layers is for ft.Network"),
    (lambda: of_rows(make_network("gru", 2, dropout=0.5)), "make the network with dropout=0"),
    (lambda: of_rows(make_network(depth=1), rule=SAMPLED), "samples them"),
    # Optimisers and heads.
    (partial(ft.adamw, steps=10, warmup_steps=10), "warmup_steps=10 must lie in [0, steps)"),
    (partial(ft.bounded, optax.sgd(1.0), 0), "bounded(overshoot=0)"),
    (
        lambda: step(learner(accumulate=True, optimizer=BOUNDED), end=True),
        "loss of the whole seque",
    ),
    # Arguments of `fit`.
    (partial(fit, SERIES[:3]), "as many sequences"),
    (partial(fit, validation=0, patience=1), "patience=…) needs a validation loss"),
    (partial(fit, 1e200 * SERIES, validation=0), "updates of epoch 1 were refused, because loss"),
    (partial(fit, xs=partial(table, a=[1.0], b=["x"])), "DataFrame whose values are not all numb"),
    (partial(fit, xs=partial(table, a=[1.0, 2.0])), "the rows of one table are a stream"),
]
OPTIONS = [
    (made, "Network", {"depth": (0, "2"), "model_size": (0, 4.0), "readout_size": (0,)}),
    (
        made,
        "Network",
        {"dropout": (1.0, -0.1), "norm": ("layer",), "norm_eps": (0.0,), "key": (0,)},
    ),
    (learner, "Learner", {"segment": (3,), "batch_size": (0,), "optimizer": (1e-3, "adam")}),
    (partial(learner, whole_sequences=True), "Learner", {"segment": (0,)}),
    (ft.kalman, "kalman", {"prior": (0.0,), "process_noise": (-1.0,), "state_correction": (0.0,)}),
    (ft.heads.least_squares, "least_squares", {"forget": (1.1,), "prior": (0.0,)}),
    (ft.adamw, "adamw", {"learning_rate": (-1.0, np.nan), "weight_decay": (-0.1,)}),
    (ft.adamw, "adamw", {"clip": (0.0,), "eps": (0.0,)}),
    (fit, "fit", {"epochs": (0,), "validation": (1.0,), "patience": (0,)}),
]
"""Options of a function, and values that they may not have: the message says what they must be."""
REFUSALS = [
    *((partial(gradient, **given), words) for words, given in DATA.items()),
    *CALLS,
    *(
        (partial(call, **{option: value}), f"{name}({option}={value!r}) must")
        for call, name, wrong in OPTIONS
        for option, values in wrong.items()
        for value in values
    ),
]


@pytest.mark.parametrize(("call", "words"), REFUSALS, ids=[words for _, words in REFUSALS])
def test_the_fault_is_named(call, words):
    with pytest.raises((TypeError, ValueError, IndexError), match=re.escape(words)):
        call()


FOREIGN = {
    "network.blocks.norm.scale is float64[1, 4], expected float64[2, 4]": ({"depth": 1}, {}),
    "network.blocks.cell.nu_log is missing, expected float64[2, 3]": ({"cell": "gru"}, {}),
    "network.encoder.weight is float32[4, 2], expected float64[4, 2]": ({"dtype": np.float32}, {}),
    "opt_state": ({}, {"optimizer": optax.adam(0.1)}),
    " has the right arrays, but was made with other options": ({"dropout": 0.5}, {}),
}
"""Options of the network and of the learner whose state is given to one with others."""


@pytest.mark.parametrize("words", list(FOREIGN))
def test_the_state_of_another_learner_is_named(words):
    of, options = FOREIGN[words]
    of = {"depth": 2, "dtype": float} | of
    dtype, own = of.pop("dtype"), learner()
    foreign = learner(jax.tree.map(lambda p: p.astype(dtype), make_network(**of)), **options)
    state = jax.eval_shape(foreign.init)
    words = re.escape(f"state{words}" if words[0] == " " else f"state.{words}")
    for call in (lambda: own.step(state, XS, YS), lambda: own.predict(state, XS)):
        with pytest.raises(ValueError, match=f"{words}.*init"):
            call()


def test_structural_zeros_are_named():
    options = {"rule": ft.SPATIAL, "optimizer": optax.sgd(0.1), "loss": LOSS}
    with pytest.warns(ft.UntrainedParameters, match="nu_log, blocks.cell.theta_log is structural"):
        ft.Learner(make_network(depth=2), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ft.Learner(make_network(depth=2), warn=False, **options)
        ft.Learner(make_network(depth=2), **options | {"rule": ft.ONLINE})


def test_labels_of_sequences_and_steps_that_do_not_count_may_be_anything():
    of, ys, mask = make_network(depth=2), jnp.array([0, -1, 2**30, 2]), jnp.array([1.0, 0, 0, 1])
    expected = gradient(of=of, ys=jnp.array([0, 0, 0, 2]), mask=mask)
    jax.tree.map(np.testing.assert_array_equal, gradient(of=of, ys=ys, mask=mask), expected)
    none = jnp.asarray(np.array([True, False, True])[:, None] & np.ones((3, 6), bool))
    gradient(of=of, **SEQUENCES | {"ys": jnp.array([0, 7, 1])}, last=True, mask=none)


def test_inputs_of_another_width_are_computed_with_as_the_parameters_are():
    """Their values are exact in float64, so the result equals the one of these values."""
    xs = np.linspace(-1, 1, 2 * C).reshape(C, 2).astype(jnp.bfloat16)
    found, wide = (
        gradient(of=make_network(depth=2), xs=jnp.asarray(rows), mask=jnp.asarray(rows[:, 0]))
        for rows in (xs, xs.astype(float))
    )
    jax.tree.map(np.testing.assert_array_equal, found, wide)
