"""Operations are counted as they are defined, and order the rules as their derivations do."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import foretrace as ft
from foretrace._engine.operations import operations
from foretrace._options.network import NetworkConfig
from foretrace.experiment import _report as report
from foretrace.experiment._config import Config
from foretrace.tasks.copy import Copy

A, B, C = jnp.ones((3, 4)), jnp.ones((4, 5)), jnp.ones(3)
Z, W = A.astype(complex), B.astype(complex)


def network(cell=None, depth=2):
    cell = ft.LRU.factory(state_size=4) if cell is None else cell
    return ft.Network(2, 3, model_size=8, depth=depth, cell=cell, key=jax.random.key(0))


@pytest.mark.parametrize(
    ("function", "arguments", "count"),
    [
        (lambda a, b: a @ b, (A, B), 2 * 3 * 4 * 5),
        (lambda a, b: a @ b, (Z, W), 8 * 3 * 4 * 5),
        (lambda a: a.T.reshape(2, 6)[:, ::-1], (A,), 0),
        (lambda a: jnp.exp(a) + a, (A,), 2 * 12),
        (lambda a: a * a + a, (Z,), 6 * 12 + 2 * 12),
        (lambda a: a.sum(), (A,), 12),
        (lambda a: a.prod(), (A,), 12),
        (lambda a: a.at[jnp.array([0, 2])].add(1.0), (A,), 8),
        (lambda a: a**2, (Z,), 6 * 12),
        (lambda a: jnp.arange(5) * 2 + 1, (A,), 0),
        (lambda a, b: (a @ b, jnp.exp(a))[1], (A, B), 12),
        (
            lambda c: lax.scan(lambda h, x: (A @ (h @ A) * x, None), c, jnp.ones(7))[0],
            (C,),
            7 * (4 * 12 + 3),
        ),
        (lambda a: lax.cond(True, jnp.exp, lambda a: a * a * a, a), (A,), 2 * 12),
        (jax.jit(jax.checkpoint(jnp.matmul)), (A, B), 2 * 3 * 4 * 5),
        (lambda a: lax.platform_dependent(a, cpu=jnp.exp, default=jnp.square), (A,), 12),
        (lambda a: lax.platform_dependent(a, tpu=jnp.exp, default=lambda a: a * a + a), (A,), 24),
        # The gradient of |a b|^2 by both: the product, its double, and a product for each; the
        # value is not asked for.
        (jax.grad(lambda a, b: ((a @ b) ** 2).sum(), (0, 1)), (A, B), 3 * 2 * 3 * 4 * 5 + 2 * 15),
    ],
)
def test_what_counts(function, arguments, count):
    assert operations(function, *arguments) == count


def test_a_loop_without_an_end_in_sight_is_refused():
    with pytest.raises(ValueError, match="while cannot be counted"):
        operations(lambda c: lax.while_loop(lambda h: h.sum() < 9, lambda h: h + 1, c), C)


def test_it_agrees_with_the_compiler_where_there_is_no_loop():
    cell = ft.GRU(8, 8, key=jax.random.key(0))
    x, h = jnp.ones(8), cell.init_state()

    def step(x, h):
        return cell.readout(cell.step(cell.coefficients(), h, h, x), x)

    found = jax.jit(step).lower(x, h).compile().cost_analysis()
    theirs = found["flops"] + found.get("transcendentals", 0)
    assert operations(step, x, h) == pytest.approx(theirs, rel=0.1)


ORDERED = [
    ["truncated", "online", *(f"online(depth=1, modules={n})" for n in (1, 2, 4))],
    ["online", "online(depth=1)", "online(depth=2)"],
]


@pytest.mark.full
def test_rules_are_ordered_by_what_they_compute():
    for rules in ORDERED:
        counts = [ft.operation_count(network(), rule, 4) for rule in rules]
        assert counts == sorted(counts) and len(set(counts)) == len(rules)
    spatial, truncated = (ft.operation_count(network(), r, 4) for r in ("spatial", "truncated"))
    assert spatial <= truncated
    # Whole sequences of linear recurrences cost what backpropagation costs.
    online, bptt = (
        ft.operation_count(network(), rule, 16, whole_sequences=True)
        for rule in (ft.ONLINE, ft.BPTT)
    )
    assert online == pytest.approx(bptt, rel=0.01)
    assert ft.operation_count(network(), ft.ONLINE, 16) > 1.05 * online  # the sensitivity goes on
    # Dense sensitivities are those of all modules.
    dense = network(ft.GRU.factory(state_size=8), depth=1)
    assert ft.operation_count(dense, ft.RTRL, 4) > 2 * ft.operation_count(dense, ft.SNAP1, 4)


@pytest.mark.full
@pytest.mark.parametrize("chunk", [None, 4])
def test_a_report_says_what_a_deep_run_costs(chunk):
    task = Copy(pattern_length=3, padding=1, bits=2)
    config = Config(
        task=task, network=NetworkConfig(depth=2, model_size=8), rule="online(depth=1)", chunk=chunk
    )
    carried = ft.carry_size(
        config.network.drawn(task.input_size, task.output_size, jax.random.key(0)),
        ft.ONLINE.with_depth(1),
    )
    assert f"{carried:,} numbers" in report._cost(config)


@pytest.mark.full
def test_shapes_are_enough_and_bad_lengths_are_named():
    shapes = jax.eval_shape(network)
    for rule in ("online", "online(depth=1, modules=2)"):
        assert ft.operation_count(shapes, rule, 3) == ft.operation_count(network(), rule, 3)
        assert ft.carry_size(shapes, rule) == ft.carry_size(network(), rule)
    with pytest.raises(ValueError, match="length=0"):
        ft.operation_count(network(), ft.ONLINE, 0)
    with pytest.raises(ValueError, match="onlin"):
        ft.operation_count(network(), "onlin")
