"""Largest differences between the step in C and in JAX over 10,000 rows.

Two layers of four modules for every cell and every rule, with Adam, and modules with the
second-order step, in float32. Some rows have a NaN input, an infinite input or a NaN target,
some are not learned, and some begin a sequence. "twin" is JAX beside JAX whose first
parameters are the next floating-point numbers: what rounding alone does over the rows. Needs a C
compiler.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

import foretrace as ft
from benchmarks import ledger
from benchmarks.networks import module_learner

NAMES = ("LRU", "S5", "RTU", "RGLRU", "SelectiveSSM", "MinGRU", "MinLSTM", "IndRNN")
NAMES += ("ElementwiseLSTM", "LIF", "SetReset", "Rotation", "GRU", "LinearRNN")


OPTIONS = dict.fromkeys(("LRU", "S5", "RTU", "LinearRNN"), {"state_size": 4})
OPTIONS["SelectiveSSM"] = {"states_per_channel": 2}
CELLS = {name: getattr(ft, name).factory(**OPTIONS.get(name, {})) for name in NAMES}
CELLS["SetReset, no products"] = ft.SetReset.factory(products=False)
CELLS["LinearRNN, tanh"] = ft.LinearRNN.factory(state_size=4, tanh=True)
"""Makers of every cell, by name."""
RULES = {
    "LRU": (ft.RESERVOIR, ft.SPATIAL, ft.TRUNCATED, ft.HYBRID, ft.BPTT, ft.ONLINE.with_depth(1),
            ft.ONLINE.with_depth(2), ft.rule("online(depth=2, groups=1)")),
    "GRU": (ft.RTRL, ft.RTRL.with_depth(2)),
}  # fmt: skip
OF_MODULES = ("kalman, 1 number", "kalman, 3 numbers", "kalman, 3 classes", "Adam, 3 classes")
MODELS = (
    *((cell, str(ft.ONLINE)) for cell in CELLS),
    *((cell, str(rule)) for cell, rules in RULES.items() for rule in rules),
    *(("modules", text) for text in OF_MODULES),
)


def learner_of(model, rule):
    """Return the learner of a line of the table, and whether its targets are classes."""
    if model == "modules":
        return _of_modules(rule)
    network = ft.Network(3, 2, model_size=4, depth=2, cell=CELLS[model], key=jax.random.key(0))
    options = {"optimizer": optax.adam(1e-3), "loss": ft.losses.squared_error, "warn": False}
    return ft.Learner(network, rule=ft.rule(rule), **options), False


def _of_modules(kind):
    optimizer, target = kind.split(", ")
    outputs, classes = int(target[0]), target.endswith("classes")
    cells = (ft.SetReset.factory(state_size=4), ft.Rotation.factory(state_size=2))
    optimizer = ft.kalman() if optimizer == "kalman" else optax.adam(1e-3)
    made = module_learner(3, classes and outputs, cells, optimizer, outputs=outputs)
    return made, classes


def rows_of(learner, rows, classes):
    """Return inputs, targets, which rows are only predicted, and which begin a sequence."""
    draw = np.random.default_rng(0)
    network, t = learner.network, np.arange(rows)
    xs = draw.normal(size=(rows, network.input_size)).astype(network.dtype)
    ys = np.roll(xs, 2, axis=0) * np.sign(xs[:, :1]) + np.roll(xs, 1, axis=0)
    ys = np.resize(ys, (rows, network.output_size))
    if classes:
        ys = ys.argmax(axis=1).astype(np.int32)
    xs[t % 211 == 50, 1], xs[t % 307 == 60, 0] = np.nan, np.inf
    if classes:
        xs[t % 101 == 70, 2] = np.inf  # a label that is no class never comes to the step in C
    else:
        ys[t % 101 == 70] = np.nan
    return xs, ys, t % 41 == 20, t % 503 == 90


def in_jax(learner):
    """Return a function that runs rows one by one in one program: last state, and results."""

    def one(state, row):
        x, y, only_predicted, begins = row
        fresh = learner.fresh_carry(state.network, state.key)
        carry = jax.tree.map(lambda new, old: jnp.where(begins, new, old), fresh, state.carry)

        def learn(state):
            state, info = learner.step(state, x[None], y[None])
            return state, (info.outputs[0], info.loss, info.accepted)

        def predict(state):
            outputs, state = learner.predict(state, x[None])
            return state, (outputs[0], jnp.zeros((), x.dtype), jnp.ones((), bool))

        return lax.cond(only_predicted, predict, learn, state._replace(carry=carry))

    return jax.jit(lambda state, rows: lax.scan(one, state, rows))


def in_c(learner, rows):
    """Return the state after the same rows in C, and their results."""
    native, found = ft.native(learner, target=rows[1][0]), []
    for x, y, only_predicted, begins in zip(*rows, strict=True):
        if begins:
            native.reset()
        found.append((native.predict(x), 0, True) if only_predicted else tuple(native.step(x, y)))
    return native.state(), tuple(map(np.array, zip(*found, strict=True)))


def difference(ours, theirs):
    """Return two trees' largest difference, relative above one; a NaN beside a number is inf."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        a, b = (np.asarray(value, np.complex128) for value in (a, b))
        with np.errstate(invalid="ignore"):
            apart = np.abs(a - b) / np.maximum(np.abs(b), 1.0)
        apart = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, apart)
        worst = max(worst, np.nan_to_num(apart, nan=np.inf).max(initial=0.0))
    return float(worst)


def compare(learner, rows, classes=False):
    """Return the step in C's distance from `Learner.step`: outputs, losses, acceptance."""
    data = rows_of(learner, rows, classes)
    run, start = in_jax(learner), learner.init()
    after, results = run(start, data)
    state, found = in_c(learner, data)
    nudged = jax.tree.map(lambda leaf: jnp.nextafter(leaf, jnp.inf), start.network)
    twin, others = run(start._replace(network=nudged), data)
    begin = [jax.tree.map(lambda leaf: leaf[:100], tree) for tree in (found, results)]
    return {
        "refused": int(after.skipped),
        "refused in C": int(state.skipped),
        "results, 100 rows": difference(*begin),
        "results": difference(found, results),
        "parameters": difference(state.network, after.network),
        "state": difference(state._replace(key=None), after._replace(key=None)),
        "results, twin": difference(others, results),
        "parameters, twin": difference(twin.network, after.network),
    }


def measure(cell):
    """Return the differences of a line of the table."""
    learner, classes = learner_of(cell["model"], cell["rule"])
    found = compare(learner, cell["rows"], classes)
    return {
        name: value if isinstance(value, int) else float(f"{value:.1e}")
        for name, value in found.items()
    }


def cells(rows=10_000):
    """Return the cells."""
    return [{"model": model, "rule": rule, "rows": rows} for model, rule in MODELS]


if __name__ == "__main__":
    ledger.run(__doc__, "native_parity", cells, measure)
