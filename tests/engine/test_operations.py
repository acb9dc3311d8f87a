"""Operations are counted as they are defined."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

import foretrace as ft
from foretrace._engine.operations import operations

A, B, C = jnp.ones((3, 4)), jnp.ones((4, 5)), jnp.ones(3)
Z, W = A.astype(complex), B.astype(complex)


@pytest.mark.parametrize(
    ("function", "arguments", "count"),
    [
        (lambda a, b: a @ b, (A, B), 2 * 3 * 4 * 5),
        (lambda a, b: a @ b, (Z, W), 8 * 3 * 4 * 5),
        (lambda a: a.T.reshape(2, 6)[:, ::-1], (A,), 0),
        (lambda a: jnp.exp(a) + a, (A,), 2 * 12),
        (lambda a: a * a + a, (Z,), 6 * 12 + 2 * 12),
        (lambda a: a.sum(), (A,), 12),
        (lambda a: a.at[jnp.array([0, 2])].add(1.0), (A,), 8),
        (lambda a: jnp.arange(5) * 2 + 1, (A,), 0),
        (lambda a, b: (a @ b, jnp.exp(a))[1], (A, B), 12),
        (
            lambda c: lax.scan(lambda h, x: (A @ (h @ A) * x, None), c, jnp.ones(7))[0],
            (C,),
            7 * (4 * 12 + 3),
        ),
        (lambda a: lax.cond(True, jnp.exp, lambda a: a * a * a, a), (A,), 2 * 12),
        (jax.jit(jax.checkpoint(jnp.matmul)), (A, B), 2 * 3 * 4 * 5),
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


@pytest.mark.full
def test_whole_sequences_of_linear_recurrences_cost_what_backpropagation_costs():
    cell = ft.LRU.factory(state_size=4)
    network = ft.Network(2, 3, model_size=8, depth=2, cell=cell, key=jax.random.key(0))
    online, bptt = (
        ft.operation_count(network, rule, 16, whole_sequences=True) for rule in (ft.ONLINE, ft.BPTT)
    )
    assert online == pytest.approx(bptt, rel=0.01)
    assert ft.operation_count(network, ft.ONLINE, 16) > 1.05 * online  # the sensitivity goes on
