"""Bad input to the core is a clear error: argument, given value, expected value."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiers import fast

import foretrace as ft

KEY = jax.random.key(0)
LOSS = ft.losses.softmax_cross_entropy
C = 4
GRU = ft.GRU.factory()

pytestmark = pytest.mark.usefixtures("without_shape_checks")


@pytest.fixture(scope="module")
def network():
    return ft.Network(2, 3, model_size=4, depth=2, cell=ft.GRU.factory(), key=KEY)


def gradient(network, carry=None, **arguments):
    given = {
        "xs": jnp.ones((C, 2)),
        "ys": jnp.zeros(C, int),
        "rule": ft.ONLINE,
        "loss": LOSS,
    } | arguments
    return ft.gradient(network, carry, given.pop("xs"), given.pop("ys"), **given)


def with_value(shape, index, value):
    array = np.ones(shape)
    array[index] = value
    return jnp.asarray(array)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"xs": jnp.ones((C, 3))}, ValueError, r"xs has shape \(4, 3\), expected \(C, 2\).*\(B, C, "
                                               r"2\)"),
        ({"xs": jnp.ones(2)}, ValueError, r"xs has shape \(2,\), expected \(C, 2\)"),
        ({"xs": jnp.ones((1, 1, C, 2))}, ValueError, r"xs has shape \(1, 1, 4, 2\)"),
        ({"xs": jnp.ones((0, 2)), "ys": jnp.zeros(0, int)}, ValueError, "at least one step"),
        ({"xs": jnp.ones((0, C, 2)), "ys": jnp.zeros((0, C), int)}, ValueError, "at least one "
                                                                                "stream"),
        ({"xs": jnp.ones((C, 2), int)}, TypeError, "xs is int.*expected floating point.*one_hot"),
        ({"xs": jnp.ones((C, 2), bool)}, TypeError, "xs is bool.*expected floating point"),
        ({"xs": jnp.ones((C, 2), complex)}, TypeError, "xs is complex.*expected floating point"),
        ({"xs": with_value((C, 2), (1, 0), np.nan)}, ValueError, r"xs holds nan at \(1, 0\) \(1 "
                                                                 r"values"),
        ({"xs": with_value((C, 2), 2, -np.inf)}, ValueError, r"xs holds -inf at \(2, 0\) \(2 "
                                                             r"values"),
        ({"ys": jnp.zeros(C + 1, int)}, ValueError, r"ys has shape \(5,\), expected \(4,\).*xs has "
                                                    r"shape \(4, 2\)"),
        ({"ys": jnp.zeros((), int)}, ValueError, r"ys has shape \(\), expected \(4,\)"),
        ({"ys": jnp.zeros(C)}, TypeError, "y must hold integer classes.*squared_error"),
        ({"ys": jnp.zeros((C, 2), int)}, ValueError, "3 logits cannot be 2 outputs"),
        ({"ys": jnp.zeros((C, 2)), "loss": ft.losses.squared_error}, ValueError, r"y has shape "
                                                                                 r"\(2,\).*\(3,\)"),
        ({"mask": jnp.ones(C - 1)}, ValueError, r"mask has shape \(3,\), expected \(4,\)"),
        ({"mask": jnp.ones((C, 1))}, ValueError, r"mask has shape \(4, 1\), expected \(4,\)"),
        ({"mask": jnp.ones(C, int)}, TypeError, "mask is int.*booleans or floating-point weights"),
        ({"mask": with_value(C, 3, np.inf)}, ValueError, r"mask holds inf at \(3,\)"),
        ({"reset": jnp.zeros(C + 1, bool)}, ValueError, r"reset has shape \(5,\), expected \(4,\)"),
        ({"reset": jnp.zeros(C)}, TypeError, "reset is float.*expected booleans"),
        ({"xs": [[1.0, 2.0]] * C}, TypeError, r"xs is a list, expected an array: "
                                              r"jnp.asarray\(xs\)"),
        ({"ys": [0] * C}, TypeError, r"ys is a list, expected an array"),
        ({"mask": [True] * C}, TypeError, r"mask is a list, expected an array"),
        ({"ys": jnp.array([0, 1, 2, 3])}, ValueError, r"label 3 \(1 labels.*0 to 2 for 3 "
                                                      r"classes.*ignore_label"),
        ({"ys": jnp.array([0, -1, -1, 2])}, ValueError, r"ys holds the label -1 \(2 labels"),
        ({"ys": np.array([0, 2**40, 0, 0])}, ValueError, "ys holds the label 1099511627776"),
        ({"ys": jnp.zeros(C, int) - 1, "mask": jnp.array([0.0, 1, 0, 0])}, ValueError,
         r"label -1 \(1 labels"),
        ({"loss": "mse"}, TypeError, r"loss='mse' must be a function loss\(output, y\)"),
        ({"loss": lambda output, y: output}, ValueError, r"loss returned an array float64\[3\] for "
                                                         r"one step.*mean"),
        ({"key": 0}, TypeError, r"gradient\(key=0\) must be a PRNG key, such as "
                                r"jax.random.key\(0\)"),
        ({"rule": "rtlr"}, ValueError, "'rtlr' is unknown; choose one of BPTT.*ONLINE"),
        ({"rule": None}, TypeError, "rule must be a LearningRule or one of.*NoneType"),
    ],
)  # fmt: skip
def test_gradient_names_what_does_not_fit(network, arguments, error, message):
    with pytest.raises(error, match=message):
        gradient(network, **arguments)


def test_a_batch_needs_its_axis_everywhere(network):
    batch = {"xs": jnp.ones((3, C, 2)), "ys": jnp.zeros((3, C), int)}
    for name, value in {
        "ys": jnp.zeros(C, int),
        "mask": jnp.ones(C),
        "reset": jnp.zeros(C, bool),
    }.items():
        with pytest.raises(ValueError, match=rf"{name} has shape \(4,\), expected \(3, 4\)"):
            gradient(network, **(batch | {name: value}))


def carry_of(rule, depth=2, cell=GRU, **batch):
    """Return a carry of zeros; only its shapes are computed."""

    def make():
        network = ft.Network(2, 3, model_size=4, depth=depth, cell=cell, key=KEY)
        return ft.init_carry(network, rule, **batch)

    return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), eqx.filter_eval_shape(make))


OTHERS = {
    "of a rule that carries nothing": {"rule": ft.BPTT},
    "of RTRL": {"rule": ft.RTRL},
    "of a batch": {"rule": ft.ONLINE, "batch_size": 1},
    "of a deeper network": {"rule": ft.ONLINE, "depth": 3},
    "of another cell": {"rule": ft.ONLINE, "cell": ft.LRU.factory(state_size=4)},
}


def test_a_carry_that_is_not_its_own_is_refused(network):
    for whose, other in OTHERS.items():
        carry = carry_of(**other)
        with pytest.raises(
            ValueError, match=r"carry does not fit: expected init_carry\(network, ONLINE"
        ):
            pytest.fail(f"a carry {whose} was taken: {gradient(network, carry)}")
    with pytest.raises(ValueError, match=r"carry does not fit.*batch_size=2"):
        batch = {"xs": jnp.ones((2, C, 2)), "ys": jnp.zeros((2, C), int)}
        gradient(network, carry_of(ft.ONLINE), **batch)
    gradient(network, carry_of(ft.ONLINE))


@pytest.mark.parametrize("name", ["ONLINE", "online", "Snap1"])
def test_rules_go_by_name_in_any_case(network, name):
    assert ft.init_carry(network, name).e is not None


def test_init_carry_names_what_is_wrong(network):
    with pytest.raises(ValueError, match="'bptt2' is unknown; choose one of BPTT"):
        ft.init_carry(network, "bptt2")
    with pytest.raises(ValueError, match=r"batch_size=0\) must be at least 1, or None"):
        ft.init_carry(network, ft.ONLINE, batch_size=0)


def test_a_rule_that_contradicts_itself_is_refused():
    with pytest.raises(ValueError, match="'mine'.*carried=True needs own=True"):
        ft.LearningRule("mine", recurrent=True, carried=True)


def test_a_cell_that_breaks_the_interface_is_refused_by_the_network():
    class Flat(ft.GRU):
        def coefficients(self):
            theta = super().coefficients()
            return theta._replace(feedforward=theta.feedforward | {"gain": self.b_hn[0]})

    with pytest.raises(
        ValueError, match=r"Flat.coefficients\(\).*gain.*module axis \(4\) in front"
    ):
        ft.Network(2, 3, model_size=4, depth=1, cell=Flat.factory(), key=KEY)


@pytest.mark.full
def test_labels_of_steps_that_do_not_count_may_be_anything(network):
    ys, mask = jnp.array([0, -1, 2**30, 2]), jnp.array([True, False, False, True])
    expected = gradient(network, ys=jnp.array([0, 0, 0, 2]), mask=mask)
    found = gradient(network, ys=ys, mask=mask)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"cell": ft.GRU(4, key=KEY)}, TypeError, r"cell is a GRU, expected a function "
                                                  r"make.*ft.LRU.factory"),
        ({"cell": ft.LRU}, TypeError, r"cell=LRU cannot be called as LRU\(4, key=...\) "
                                      r"\(missing.*ft.LRU.factory"),
        ({"cell": eqx.nn.GRUCell}, TypeError, "cell=GRUCell cannot be called.*hidden_size"),
        ({"cell": lambda size, *, key: eqx.nn.GRUCell(size, size, key=key)}, TypeError,
         "makes a GRUCell.*FromModule"),
        ({"cell": "lru"}, TypeError, "cell is 'lru', expected a function make"),
        ({"key": 0}, TypeError, r"Network\(key=0\) must be a PRNG key"),
        ({"key": jax.random.split(KEY)}, TypeError, r"Network\(key=an array key<fry>\[2\]\) must "
                                                    r"be a PRNG key"),
        ({"model_size": 4.0}, TypeError, r"Network\(model_size=4.0\) must be a whole number"),
        ({"depth": "2"}, TypeError, r"Network\(depth='2'\) must be a whole number"),
    ],
)  # fmt: skip
def test_a_network_names_what_is_of_the_wrong_type(arguments, error, message):
    with pytest.raises(error, match=message):
        ft.Network(
            2,
            3,
            **({"model_size": 4, "depth": 2, "cell": ft.GRU.factory(), "key": KEY} | arguments),
        )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"optimizer": 1e-3},
            r"Learner\(optimizer=0.001\) must be an Optax optimiser, such as ft.adamw\(1e-3\)",
        ),
        (
            {"optimizer": ft.adamw},
            r"Learner\(optimizer=<function adamw.*must be an Optax optimiser",
        ),
        ({"loss": "mse"}, r"loss='mse' must be a function"),
        ({"network": "lru"}, r"Learner\(network=str\) must be a foretrace.Network"),
        ({"rule": 3}, "rule must be a LearningRule or one of"),
    ],
)
def test_a_learner_names_what_is_of_the_wrong_type(network, arguments, message):
    given = {
        "network": network,
        "rule": ft.ONLINE,
        "optimizer": ft.adamw(1e-3),
        "loss": LOSS,
    } | arguments
    with pytest.raises(TypeError, match=message):
        ft.Learner(given.pop("network"), **given)


def test_what_a_learner_is_called_with_is_checked(network):
    learner = ft.Learner(network, rule=ft.ONLINE, optimizer=ft.adamw(1e-3), loss=LOSS)
    with pytest.raises(TypeError, match=r"init\(key=0\) must be a PRNG key"):
        learner.init(0)
    x, y = jnp.ones((1, 2)), jnp.array([1])
    with pytest.raises(
        TypeError, match=r"state is a Network, expected what init\(\) or the previous call returned"
    ):
        learner.step(network, x, y)
    state = jax.eval_shape(learner.init)
    for wrong in (-1, 3):
        with pytest.raises(ValueError, match=f"ys holds the label {wrong}"):
            learner.step(state, x, jnp.array([wrong]))
    with pytest.raises(TypeError, match="xs is a list"):
        learner.predict(state, [[1.0, 1.0]])
    with pytest.raises(
        TypeError, match=r"init_carry\(network=Learner\) must be a foretrace.Network"
    ):
        ft.init_carry(learner, ft.ONLINE)


NARROW = [jnp.bfloat16, jnp.float16]


@pytest.mark.parametrize("dtype", fast(NARROW))
def test_inputs_of_another_width_are_computed_with_as_the_parameters_are(
    network, dtype, standard_promotion
):
    """Their values are exact in float64, so the result equals the one of these values."""
    xs, mask = (
        jnp.linspace(-1, 1, 2 * C).reshape(shape).astype(dtype) for shape in ((C, 2), (2, C))
    )
    found = gradient(network, xs=xs, mask=mask[0])
    wide = gradient(network, xs=xs.astype(float), mask=mask[0].astype(float))
    for got, want in zip(jax.tree.leaves(found), jax.tree.leaves(wide), strict=True):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(ValueError, match=r"xs holds nan at \(1, 0\)"):
        gradient(network, xs=xs.at[1, 0].set(jnp.nan))
    with pytest.raises(ValueError, match=r"mask holds inf at \(3,\)"):
        gradient(network, mask=jnp.ones(C, dtype).at[3].set(jnp.inf))


@pytest.mark.parametrize("dtype", fast(NARROW))
def test_networks_too_narrow_to_sum_over_time_are_refused(network, dtype):
    narrow = jax.tree.map(lambda leaf: leaf.astype(dtype), network)
    name = jnp.dtype(dtype).name
    takes = {
        "run": lambda: gradient(narrow),
        "init_carry": lambda: ft.init_carry(narrow, ft.ONLINE),
        "Learner": lambda: ft.Learner(narrow, rule=ft.ONLINE, optimizer=optax.sgd(0.1), loss=LOSS),
        "Agent": lambda: ft.rl.Agent(narrow, ft.rl.QLearning(), rule=ft.ONLINE),
    }
    for owner, take in takes.items():
        with pytest.raises(
            TypeError,
            match=rf"{owner}: network.encoder.weight is {name}, expected float32 or float64",
        ):
            take()
