"""Public check of the equalities (laws) that every cell must satisfy under every rule.

A network with a nearly correct derivative trains almost equally well, so errors in it are hard to
notice. Four public codes of this field had wrong sensitivities that no test could see. Here every
law is an equality in float64.
"""

from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from foretrace._cells.abstract import AbstractCell, Coefficients, check_interface
from foretrace._recurrence.sensitivity import absent
from foretrace._rule import HYBRID, LearningRule
from foretrace._types import Array, PRNGKeyArray
from foretrace.testing._definitions import modules_of
from foretrace.testing._measure import (
    EVERY_RULE,
    Alone,
    Definitions,
    Run,
    definitions,
    differences,
    differentiate_step,
    every_way,
    measure,
    normal_like,
)


class Law(NamedTuple):
    """An equality that holds. The largest difference is relative where numbers exceed one."""

    law: str
    error: float


class Report(NamedTuple):
    """Every law that `check_cell` measured, in order."""

    cell: str
    laws: list[Law]

    def __str__(self) -> str:
        return "\n".join(
            [f"{self.cell} obeys:", *(f"  {law:<60} {error:.1e}" for law, error in self.laws)]
        )


def check_cell(
    cell: AbstractCell,
    *,
    key: PRNGKeyArray | None = None,
    length: int = 6,
    tolerance: float = 1e-8,
    noise: float = 0.05,
    frozen: tuple[str, ...] = (),
    surrogate: bool = False,
) -> Report:
    """Assert every law that a cell must satisfy, in float64, whatever the session's precision.

    The laws are these. The interface is complete, and `own` and `others` are used as declared. Each
    coefficient belongs to one module, and a complex step is holomorphic. A scan equals single
    steps. Values and gradients equal the definition of each rule. Chunks of one step and longer
    chunks give the same gradient and carry. ONLINE equals RTRL if, and only if, modules are
    independent. RTRL equals BPTT within the layer, and HYBRID lies between ONLINE and BPTT. A reset
    equals the start of a new sequence. Sensitivities and gradients equal finite differences. Every
    parameter learns.

    Args:
        cell: a small cell with a few inputs and modules.
        key: PRNG key of inputs, targets, chunk lengths and noise.
        length: number of steps in a sequence, at least 2.
        tolerance: largest error allowed.
        noise: standard deviation of the noise that is added to the parameters, so that no law holds
            only because a bias is zero or a matrix is the identity.
        frozen: names of parameters that have no gradient by design.
        surrogate: whether the derivative of the readout is a surrogate, as in spiking units. Only
            the derivative of the state is then compared with finite differences, not the gradient
            of the loss.

    Returns:
        The laws with their errors. `print` shows them as a table.

    Raises:
        AssertionError: a law is broken. The message names the law, the rule, the parameter and the
            error, and says where to look.
        ValueError: the length is below 2.

    >>> import foretrace as ft, jax
    >>> report = ft.testing.check_cell(ft.LRU(input_size=2, state_size=3, key=jax.random.key(0)))
    >>> max(error for _, error in report.laws) < 1e-8
    True
    """
    if length < 2:
        raise ValueError(f"check_cell(length={length}) must be at least 2: one chunk and another")
    book = _Book(type(cell).__name__, tolerance, [], frozen, surrogate)
    random = np.random.default_rng(0 if key is None else np.ravel(jax.random.key_data(key)))
    _check_interface(cell, book)
    with jax.enable_x64(True):
        cell = _generic(cell, noise, random)
        _check_interface(cell, book)
        _check_step(cell, random, book)
        _check_gradients(cell, random, length, book)
    worst: dict[str, float] = {}  # some laws are measured twice
    for law, error in book.laws:
        worst[law] = max(error, worst.get(law, 0.0))
    return Report(book.cell, [Law(*one) for one in worst.items()])


class _Book(NamedTuple):
    cell: str
    tolerance: float
    laws: list[Law]
    frozen: tuple[str, ...]
    surrogate: bool

    def equal(self, law: str, got: Any, want: Any, hint: str = "") -> None:
        """Record the largest difference between two trees, or raise an error."""
        errors = [
            _error(g, w) for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True)
        ]
        worst = int(np.argmax(errors))  # a NaN, if there is one
        self.require(
            law, errors[worst] <= self.tolerance, errors[worst], _named(got)[worst][0], hint
        )

    def require(self, law: str, holds: bool, error: float, where: str = "", hint: str = "") -> None:
        """Record a law if it holds, or raise an error."""
        if not holds:
            at, why = where and f" at {where}", hint and f". {hint}"
            off = f"error {error:.3e}, tolerance {self.tolerance:.1e}"
            raise AssertionError(f"{self.cell} breaks the law '{law}'{at}: {off}{why}")
        self.laws.append(Law(law, error))


def _error(got: Any, want: Any) -> float:
    return float(
        np.max(np.abs(got - want), initial=0.0) / max(1.0, np.max(np.abs(want), initial=0.0))
    )


def _named(tree: Any) -> list[tuple[str, Any]]:
    leaves = jax.tree.leaves_with_path(tree)
    return [(jax.tree_util.keystr(path, simple=True, separator="."), leaf) for path, leaf in leaves]


def _check_interface(cell: AbstractCell, book: _Book) -> None:
    wrong = [
        name
        for name, a in _named(cell)
        if not (eqx.is_array(a) and jnp.issubdtype(a.dtype, jnp.floating))
    ]
    hint = "Parameters are real floating-point arrays; mark other fields eqx.field(static=True)"
    book.require("interface, parameters", not wrong, 0.0, ", ".join(wrong), hint)
    try:
        check_interface(cell)
    except (TypeError, ValueError) as error:
        raise AssertionError(f"{book.cell} breaks the law 'interface': {error}") from error
    h, theta, x = jax.eval_shape(
        lambda: (cell.init_state(), cell.coefficients(), jnp.zeros(cell.input_size))
    )
    dtypes = sorted({str(leaf.dtype) for leaf in jax.tree.leaves((h, theta))})
    hint = (
        f"State and coefficients mix {dtypes}: take the dtype from the parameters, and one for all"
    )
    book.require("interface, one dtype", len(dtypes) == 1, 0.0, "coefficients", hint)
    y = jax.eval_shape(cell.readout, h, x)
    real = jnp.issubdtype(y.dtype, jnp.floating)
    hint = f"It returned {y}, expected real numbers of shape ({cell.output_size},)"
    book.require(
        "interface, readout", real and y.shape == (cell.output_size,), 0.0, "readout", hint
    )


def _generic(cell: AbstractCell, noise: float, random: np.random.Generator) -> AbstractCell:
    """Return the cell in double precision, with slightly changed parameters."""
    double = jax.tree.map(lambda a: np.asarray(a, np.float64), cell)
    return jax.tree.map(
        lambda a, z: jnp.asarray(a + noise * np.asarray(z)), double, normal_like(random, double)
    )


def _check_step(cell: AbstractCell, random: np.random.Generator, book: _Book) -> None:
    """Check the arguments of a step by its derivatives at a random point."""
    h, theta = jax.eval_shape(lambda: (cell.init_state(), cell.coefficients()))
    xs = jnp.asarray(random.normal(size=(3, cell.input_size)))
    offset, *states = normal_like(random, (theta, h, h))
    got = measure(differentiate_step, cell, offset, states, xs)
    for name, (real, imaginary) in {
        "own": got.own,
        "others": got.others,
        "theta": got.theta,
    }.items():
        if np.iscomplexobj(real):
            hint = (
                "The derivative along i is not i times the one along 1: no conj, abs, real or "
                "imag in a step"
            )
            book.equal(f"step is holomorphic in {name}", imaginary, 1j * real, hint)
    modules, theta_modules = modules_of(h), modules_of(theta)
    same = modules[:, None] == modules[None]
    hint = "A module reads the past of another one from `own`; it belongs to `others`"
    book.equal(
        "own is the past of each module", np.where(same, 0, got.own[0]), 0 * got.own[0], hint
    )
    hint = "A module reads its own past from `others`; write w @ others + diag(w) * (own - others)"
    book.equal(
        "others are the other modules", np.where(same, got.others[0], 0), 0 * got.others[0], hint
    )
    hint = (
        "theta[n, ...] acts on another module than n: its module's axis must be in front, what "
        "is shared broadcast"
    )
    foreign = np.where(modules[:, None] == theta_modules[None], 0, got.theta[0])
    book.equal("a coefficient acts on one module", foreign, 0 * foreign, hint)
    coupling = float(np.max(np.abs(got.others[0])))
    hint = (
        f"It is {cell.independent}, but the largest derivative with respect to `others` is "
        f"{coupling:.1e}"
    )
    as_declared = (coupling > book.tolerance) != cell.independent
    book.require("independent as declared", as_declared, 0.0, "independent", hint)
    learnt = [name for name, leaf in _named(got.initial) if np.any(leaf)]
    hint = "init_state depends on a parameter, but a sequence starts from a constant"
    book.require("the initial state is a constant", not learnt, 0.0, ", ".join(learnt), hint)
    for name, hs in got.scans.items():
        book.equal(
            f"step = a * own + b, {name} scan", hs, got.steps, "decay_and_drive and step differ"
        )


def _check_gradients(
    cell: AbstractCell, random: np.random.Generator, length: int, book: _Book
) -> None:
    """Check that finite differences, the definition of a rule and all its computations agree."""
    network = Alone(cell, random)
    xs, ys = (jnp.asarray(random.normal(size=(length, 2))) for _ in range(2))
    at, least = np.arange(length), min(2, length - 1)
    size = int(random.integers(least, length))
    resets = jnp.asarray([at < 0, at % size == 0, random.random(length) < 0.4, at % size == 0])
    fresh = jnp.arange(4) == 3
    want = measure(definitions, network, xs, ys, resets)
    _check_differences(cell, (network, xs, ys), random, want, book)
    online, rtrl, bptt = (want.gradients[name][1] for name in ("ONLINE", "RTRL", "BPTT"))
    snap1 = online.blocks.cell
    apart = max(map(_error, jax.tree.leaves(snap1), jax.tree.leaves(rtrl.blocks.cell)))
    hint = (
        f"Gradients differ by {apart:.1e}; modules that do not read `others` are independent, "
        "and only they"
    )
    as_declared = (apart <= book.tolerance) == cell.independent
    book.require("ONLINE = RTRL iff independent", as_declared, 0.0, "", hint)
    silent = [name for name, leaf in _named(snap1) if not np.any(leaf) and name not in book.frozen]
    hint = (
        "Nothing reaches it under ONLINE: use it, do not stop its gradient, or name it in `frozen`"
    )
    hint += "; if its units may be shut, as a ReLU, draw other inputs with `key`"
    book.require("every parameter learns", not silent, 0.0, ", ".join(silent), hint)
    inside = (rtrl.blocks, rtrl.decoder), (bptt.blocks, bptt.decoder)
    book.equal("RTRL = BPTT in the layer and above", *inside)
    for rule in EVERY_RULE:
        ways = measure(partial(every_way, rule=rule, size=size), network, xs, ys, resets, fresh)
        _check_rule(cell, rule, ways, want, size, book)


def _check_rule(
    cell: AbstractCell,
    rule: LearningRule,
    ways: dict[str, Run],
    want: Definitions,
    size: int,
    book: _Book,
) -> None:
    whole, singly = ways["whole"], ways.get("singly")
    book.equal(f"values do not depend on the rule, {rule}", whole.loss, want.gradients["BPTT"][0])
    book.equal(f"states of the plain recurrence, {rule}", _only_layer(whole.carry.h), want.h)
    if rule != HYBRID or cell.independent:
        definition = want.gradients["BPTT" if rule == HYBRID else rule.name][1]
        book.equal(f"definition, {rule} on a whole sequence", whole.grads, definition)
        pairs = zip(jax.tree.leaves(whole.grads), jax.tree.leaves(definition), strict=True)
        closed = max(
            (float(np.max(np.abs(got))) for got, want in pairs if not np.any(want)), default=0.0
        )
        book.require(f"closed parameters have exactly no gradient, {rule}", closed == 0, closed)
    if rule.name in want.e:
        # One that is absent has to be zero.
        e = jax.tree.map(
            lambda got, one: np.zeros_like(one) if got is None else got,
            _only_layer(whole.carry.e),
            want.e[rule.name],
            is_leaf=absent,
        )
        book.equal(f"definition of the sensitivity, {rule}", e, want.e[rule.name])
    if singly and rule.inputs:
        definition = want.gradients["ONLINE" if rule == HYBRID else "TRUNCATED"][1]
        book.equal(f"definition, {rule} in chunks of one step", singly.grads, definition)
    elif singly:
        book.equal(f"chunk invariance, {rule} in chunks of one step", singly, whole)
    if "chunks" in ways:
        law = f"chunk invariance, {rule} in chunks of {size} steps; a reset begins a sequence"
        book.equal(law, ways["chunks"], whole)


def _check_differences(
    cell: AbstractCell,
    data: tuple[Alone, Array, Array],
    random: np.random.Generator,
    want: Definitions,
    book: _Book,
) -> None:
    network, xs, ys = data
    directions = normal_like(random, network)
    along = jax.tree.map(np.asarray, normal_like(random, jax.eval_shape(cell.coefficients)))
    units = [1, 1j] if np.iscomplexobj(jax.tree.leaves(along)[0]) else [1]
    stacked = jax.tree.map(lambda d: jnp.asarray(np.stack([unit * d for unit in units])), along)
    found = measure(differences, network, directions, stacked, xs, ys)
    e, grads = jax.tree.map(lambda leaf: leaf[0], (want.e["RTRL"], want.gradients["BPTT"][1]))
    for part, unit in enumerate(units):
        state = jax.tree.map(lambda leaf, part=part: leaf[part], found.state)
        moved = jax.tree.map(lambda _, j, unit=unit: unit * _apply(j, along), state, e)
        hint = (
            "The sensitivity is not the derivative of the state; one that is not holomorphic "
            "fails here"
        )
        book.equal(f"finite differences of the state along {unit}, RTRL", moved, state, hint)
    if not book.surrogate:
        slopes = jax.tree.map(lambda g, d: np.sum(g * np.asarray(d)), grads, directions)
        book.equal(
            "finite differences of the loss, BPTT",
            slopes,
            found.loss,
            "Is a gradient stopped inside the step?",
        )


def _apply(jacobian: Coefficients, along: Coefficients) -> np.ndarray:
    """Return the derivative of a state's leaf along a direction, from its sensitivity."""
    terms = zip(jax.tree.leaves(jacobian), jax.tree.leaves(along), strict=True)
    return sum(np.sum(j * d, axis=tuple(range(1, j.ndim))) for j, d in terms)


def _only_layer(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[:, 0], tree)
