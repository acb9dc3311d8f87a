"""Refusals of the core: a call, and the words that name argument, given and expected value."""

import re
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from gradients import LOSS, make_network
from tiers import fast

import foretrace as ft

pytestmark = pytest.mark.usefixtures("without_shape_checks", "standard_promotion")

KEY, C = jax.random.key(0), 4
XS, YS = jnp.ones((C, 2)), jnp.zeros(C, int)
GRU = ft.GRU.factory()


def network():
    return make_network("gru", 2)


def gradient(carry=None, of=None, xs=XS, ys=YS, **arguments):
    of = network() if of is None else of
    return ft.gradient(of, carry, xs, ys, **{"rule": ft.ONLINE, "loss": LOSS} | arguments)


def made(**arguments):
    return ft.Network(2, 3, **{"model_size": 4, "depth": 2, "cell": GRU, "key": KEY} | arguments)


def with_carry_of(rule=ft.ONLINE, depth=2, cell=GRU, batch_size=None, **arguments):
    """Call `gradient` with a carry of zeros; only its shapes are computed."""

    def start():
        return ft.init_carry(made(depth=depth, cell=cell), rule, batch_size)

    shapes = eqx.filter_eval_shape(start)
    return gradient(
        jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes), **arguments
    )


class Flat(ft.GRU):
    def coefficients(self):
        theta = super().coefficients()
        return theta._replace(feedforward=theta.feedforward | {"gain": self.b_hn[0]})


class NarrowCell(ft.LRU):
    @property
    def output_size(self):
        return 2


def narrow(dtype=jnp.bfloat16):
    return jax.tree.map(lambda leaf: leaf.astype(dtype), network())


BATCH = {"xs": jnp.ones((3, C, 2)), "ys": jnp.zeros((3, C), int)}
CUMULATIVE = partial(made, depth=1, cumulative_mean=True)
SEQUENCES = {"xs": jnp.ones((3, 6, 2)), "ys": jnp.zeros(3, int)}
OTHER = "carry does not fit: expected init_carry(network, ONLINE"
WIDTH = "network.encoder.weight is bfloat16, expected float32 or float64"
BEYOND = np.array([0, 2**40, 0, 0])

REFUSALS = {
    # Data of a chunk.
    "xs has shape (4, 3), expected (C, 2) for one stream or (B, C, 2)": {"xs": jnp.ones((C, 3))},
    "xs has shape (2,), expected (C, 2)": {"xs": jnp.ones(2)},
    "xs has shape (1, 1, 4, 2)": {"xs": jnp.ones((1, 1, C, 2))},
    "at least one step": {"xs": jnp.ones((0, 2)), "ys": jnp.zeros(0, int)},
    "of at least one stream": {"xs": jnp.ones((0, C, 2)), "ys": jnp.zeros((0, C), int)},
    "xs is int64, expected floating point; encode symbols first": {"xs": XS.astype(int)},
    "xs is bool, expected floating point": {"xs": XS.astype(bool)},
    "xs is complex128, expected floating point": {"xs": XS.astype(complex)},
    "xs is a list, expected an array: jnp.asarray(xs)": {"xs": [[1.0, 2.0]] * C},
    "xs holds nan at (1, 0) (1 values": {"xs": XS.at[1, 0].set(jnp.nan)},
    "xs holds nan at (2, 1)": {"xs": XS.astype(jnp.float16).at[2, 1].set(jnp.nan)},
    "xs holds -inf at (2, 0) (2 values": {"xs": XS.at[2].set(-jnp.inf)},
    "ys has shape (5,), expected (4,) and then": {"ys": jnp.zeros(C + 1, int)},
    "ys has shape (), expected (4,)": {"ys": jnp.zeros((), int)},
    "ys has shape (4,), expected (3, 4)": BATCH | {"ys": YS},
    "ys is a list, expected an array": {"ys": [0] * C},
    "y must hold integer classes": {"ys": jnp.zeros(C)},
    "3 logits cannot be 2 outputs": {"ys": jnp.zeros((C, 2), int)},
    "y has shape (2,), expected that of the output, (3,)": {
        "ys": jnp.zeros((C, 2)),
        "loss": ft.losses.squared_error,
    },
    "ys holds the label 3 (1 labels are no class), expected 0 to 2": {"ys": jnp.arange(C)},
    "ys holds the label -1 (2 labels": {"ys": jnp.array([0, -1, -1, 2])},
    "ys holds the label 1099511627776": {"ys": BEYOND},
    "ys holds the label -1 (1 labels": {"ys": YS - 1, "mask": jnp.array([0.0, 1, 0, 0])},
    "mask has shape (3,), expected (4,)": {"mask": jnp.ones(C - 1)},
    "mask has shape (4, 1), expected (4,)": {"mask": jnp.ones((C, 1))},
    "mask has shape (4,), expected (3, 4)": BATCH | {"mask": jnp.ones(C)},
    "mask is a list, expected an array": {"mask": [True] * C},
    "mask is int64, expected booleans or floating-point weights": {"mask": jnp.ones(C, int)},
    "mask holds inf at (3,)": {"mask": jnp.ones(C, jnp.bfloat16).at[3].set(jnp.inf)},
    "reset has shape (5,), expected (4,)": {"reset": jnp.zeros(C + 1, bool)},
    "reset has shape (4,), expected (3, 4)": BATCH | {"reset": jnp.zeros(C, bool)},
    "reset is float64, expected booleans": {"reset": jnp.zeros(C)},
    "ys has shape (3,), expected (3, 6) and then": SEQUENCES,
    "needs last=True": SEQUENCES,
    "ys has shape (2,), expected (3,)": SEQUENCES | {"ys": jnp.zeros(2, int), "last": True},
    "ys holds the label 7": SEQUENCES | {"ys": jnp.array([0, 7, 1]), "last": True},
    # The other arguments of `gradient`.
    "loss='mse' must be a function loss(output, y)": {"loss": "mse"},
    "loss returned an array float64[3] for one step": {"loss": lambda output, y: output},
    "gradient(key=0) must be a PRNG key, such as jax.random.key(0)": {"key": 0},
    "rule='rtlr' is unknown; choose one of BPTT": {"rule": "rtlr"},
    "rule must be a LearningRule or one of": {"rule": None},
    f"run: {WIDTH}": lambda: gradient(of=narrow()),
    "cumulative_mean runs on whole sequences only": lambda: gradient(
        ft.init_carry(CUMULATIVE(), "bptt"), CUMULATIVE(), rule="bptt"
    ),
    # Carries of others.
    OTHER: partial(with_carry_of, ft.BPTT),
    f"{OTHER}, batch_size=None": partial(with_carry_of, ft.RTRL),
    f"{OTHER}, batch_size=None) or": partial(with_carry_of, batch_size=1),
    f"{OTHER}, batch_size=None) or what": partial(with_carry_of, depth=3),
    f"{OTHER}, batch_size=None) or what a": partial(
        with_carry_of, cell=ft.LRU.factory(state_size=4)
    ),
    f"{OTHER}, batch_size=3": partial(with_carry_of, **BATCH),
    "rule='bptt2' is unknown; choose one of BPTT": lambda: ft.init_carry(network(), "bptt2"),
    "batch_size=0) must be at least 1, or None": lambda: ft.init_carry(network(), "online", 0),
    f"init_carry: {WIDTH}": lambda: ft.init_carry(narrow(), ft.ONLINE),
    "init_carry(network=str) must be a foretrace.Network": lambda: ft.init_carry("gru", ft.ONLINE),
    "carried=True needs own=True": lambda: ft.LearningRule("mine", recurrent=True, carried=True),
    # Networks and their cells.
    "Flat.coefficients().feedforward['gain'] has shape (), expected the module axis (4)": lambda: (
        made(cell=Flat.factory())
    ),
    "cell is a GRU, expected a function make": lambda: made(cell=ft.GRU(4, key=KEY)),
    "cell=LRU cannot be called as LRU(4, key=...) (missing": lambda: made(cell=ft.LRU),
    "cell=GRUCell cannot be called": lambda: made(cell=eqx.nn.GRUCell),
    "makes a GRUCell, which is not a cell of foretrace": lambda: made(
        cell=lambda size, *, key: eqx.nn.GRUCell(size, size, key=key)
    ),
    "cell is 'lru', expected a function make": lambda: made(cell="lru"),
    "NarrowCell puts out 2 features where the network carries model_size=4": lambda: made(
        cell=NarrowCell.factory(state_size=3)
    ),
    "GRU puts out 3 features": lambda: made(cell=ft.GRU.factory(state_size=3)),
    "Network(key=0) must be a PRNG key": lambda: made(key=0),
    "Network(key=an array key<fry>[2]) must be a PRNG key": lambda: made(key=jax.random.split(KEY)),
    "Network(model_size=4.0) must be a whole number": lambda: made(model_size=4.0),
    "Network(depth='2') must be a whole number": lambda: made(depth="2"),
    "Network(depth=0) must be at least 1": lambda: made(depth=0),
    "Network(model_size=0) must be at least 1": lambda: made(model_size=0),
    "Network(readout_size=0) must be at least 1": lambda: made(readout_size=0),
    "Network(dropout=1.0) must lie in [0, 1)": lambda: made(dropout=1.0),
    "Network(dropout=-0.1) must lie": lambda: made(dropout=-0.1),
    "Network(norm='layer') must be 'pre', 'post' or 'none'": lambda: made(norm="layer"),
    "Network(norm_eps=0.0) must be a finite number above 0": lambda: made(norm_eps=0.0),
    f"Learner: {WIDTH}": lambda: ft.Learner(
        narrow(), rule=ft.ONLINE, optimizer=optax.sgd(0.1), loss=LOSS
    ),
    f"Agent: {WIDTH}": lambda: ft.rl.Agent(narrow(), ft.rl.QLearning(), rule=ft.ONLINE),
    "block(2): the network has depth 2": lambda: network().block(2),
    "block(-3): the network has depth 2": lambda: network().block(-3),
    "alignment(chunk=0) must be at least 1": lambda: ft.alignment(
        make_network("gru"), XS, YS, rule="ONLINE", loss=LOSS, chunk=0
    ),
}


@pytest.mark.parametrize("words", list(REFUSALS))
def test_the_fault_is_named(words):
    call = REFUSALS[words]
    with pytest.raises((TypeError, ValueError, IndexError), match=re.escape(words)):
        call() if callable(call) else gradient(**call)


@pytest.mark.parametrize("name", ["ONLINE", "online", "Snap1"])
def test_rules_go_by_name_in_any_case(name):
    gradient(ft.init_carry(network(), name), rule=name)


def test_labels_of_sequences_and_steps_that_do_not_count_may_be_anything():
    ys, mask = jnp.array([0, -1, 2**30, 2]), jnp.array([True, False, False, True])
    expected = gradient(ys=jnp.array([0, 0, 0, 2]), mask=mask)
    jax.tree.map(np.testing.assert_array_equal, gradient(ys=ys, mask=mask), expected)
    none = jnp.array([True, False, True])[:, None] & jnp.ones((3, 6), bool)
    gradient(**SEQUENCES | {"ys": jnp.array([0, 7, 1])}, last=True, mask=none)


@pytest.mark.parametrize("dtype", fast([jnp.bfloat16, jnp.float16]))
def test_inputs_of_another_width_are_computed_with_as_the_parameters_are(dtype):
    """Their values are exact in float64, so the result equals the one of these values."""
    xs = jnp.linspace(-1, 1, 2 * C).reshape(C, 2).astype(dtype)
    found = gradient(xs=xs, mask=xs[:, 0])
    wide = gradient(xs=xs.astype(float), mask=xs[:, 0].astype(float))
    jax.tree.map(np.testing.assert_array_equal, found, wide)
