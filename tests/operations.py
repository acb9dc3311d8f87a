"""Functions of a vector, a matrix and places, that a graph of each format must compute as JAX does.

A new operation of a format is one line.
"""

from itertools import product

import jax
import jax.numpy as jnp
from jax import lax


def of_complex_numbers(a, b, i):
    z, w = lax.complex(b[0], b[1]), lax.complex(a, b[0])
    found = [z * w, z / w, jnp.exp(z), jnp.expm1(z), z**3, z**-2, jnp.conj(z) - w, -z]
    found += [jnp.where(a > 0, z, w), jnp.vdot(z, w), jnp.outer(z, w).sum(0), jnp.cumsum(z)]
    found += [jnp.stack([z, w])[::-1], 1j * z + 2]
    reals = [abs(z), jnp.isfinite(z) + 0.0, (z == w) + 0.0, z.real * 2]
    return [part for value in found for part in (value.real, value.imag)] + reals


def of_triangular_systems(a, b, i):
    kinds = ("lower", "transpose_a", "unit_diagonal")
    return [
        lax.linalg.triangular_solve(
            b[:4] + 3 * jnp.eye(4),
            b[:4, :3] if left else b[:4, :3].T,
            left_side=left,
            **dict(zip(kinds, values, strict=True)),
        )
        for left, *values in product([False, True], repeat=4)
    ]


OPERATIONS = {
    "pick a class": lambda a, b, i: jax.nn.log_softmax(a)[jnp.argmax(b[0])],
    "diagonal": lambda a, b, i: jnp.diagonal(b[:4]) + jnp.trace(b[:4]),
    "log1p and expm1": lambda a, b, i: jnp.log1p(jnp.abs(a) * 1e-12) + jnp.expm1(a * 1e-12),
    "functions": lambda a, b, i: (
        jnp.sin(b) + jnp.cos(b) + jnp.tanh(b) * jnp.exp(b) + jax.nn.sigmoid(b)
    ),
    "powers": lambda a, b, i: (
        b**2 + b**3 - b**-1 + b**-2 + lax.rsqrt(b * b + 1) + jnp.log2(b * b) + jnp.abs(b) ** a
    ),
    "softplus": lambda a, b, i: jax.nn.softplus(100 * a),
    "clip and round": lambda a, b, i: jnp.clip(b, -0.5, a.max()) + jnp.floor(b) % 3,
    "reductions": lambda a, b, i: b.max(0) + b.min(1)[:4] + b.any(0) + (b > 0).all(0),
    "sums of rows": lambda a, b, i: b.sum(0) @ a + (b * b).sum(1).sum() + jnp.cumsum(b, 0)[3],
    "sums from behind": lambda a, b, i: lax.cumsum(b, axis=1, reverse=True),
    "products": lambda a, b, i: jnp.einsum("ij,kj,j->ki", b, b, a),
    "batched": lambda a, b, i: jnp.einsum("ij,ij->i", b, b)[::-1],
    "products of joined matrices": lambda a, b, i: (
        jnp.concatenate([b, jnp.exp(b)]) @ a,
        jnp.concatenate([a, jnp.sin(a)]) @ jnp.concatenate([b[:4], 2 * b[1:]]),
        jnp.concatenate([b, jnp.zeros((5, 2))], 1).T @ b,
        jnp.concatenate([jnp.exp(a), a])[2:6] ** 2,
    ),
    "chosen rows": lambda a, b, i: jnp.eye(6, 4, 1) @ b.T,
    "pad and cut": lambda a, b, i: jnp.pad(b, ((1, 2), (0, 1)), constant_values=3.0)[::2],
    "pad with gaps and by less than nothing": lambda a, b, i: (
        lax.pad(b, a[0], [(1, 0, 1), (-1, 2, 0)]),
        lax.pad(a, 2.0, [(-1, 1, 2)]),
    ),
    "gradient of a strided part": jax.grad(lambda a, b, i: (a[::2] ** 2).sum() + a[3] * b.sum()),
    "parts": lambda a, b, i: jnp.stack(jnp.split(b.T, 2)[::-1] + [jnp.tile(a[:2, None], (1, 5))]),
    "comparisons": lambda a, b, i: jnp.where((a >= 0) & ~(a > 1) | (a != a), a, -jnp.sign(a)),
    "non-finite": lambda a, b, i: jnp.isfinite(a / jnp.array([0.0, 1.0, 0.0, 1.0])) + 0.0,
    "a branch": lambda a, b, i: lax.cond(
        a[0] > 0, lambda a: a * 2, lambda a: a + jnp.log(-1.0 * a[0] * a[0]), a
    ),
    "a branch of complex numbers": lambda a, b, i: (
        lax.switch(
            jnp.argmax(b[0]),
            [lambda a: a * 1j, lambda a: a + 0j, lambda a: 2j + a, lambda a: -a + 0j],
            a,
        ).imag
    ),
    "choices": lambda a, b, i: lax.select_n(
        (i + jnp.arange(3, dtype=i.dtype)) % 3, i, i + 10, i * 7
    ),
    "places of the largest": lambda a, b, i: jnp.argmax(jnp.floor(b), 0) + jnp.argmax(b),
    "picks": lambda a, b, i: (a[i], b[i % 5], b[:, i], b[i % 5, i], b[i[0], 1:]),
    "picks behind": lambda a, b, i: jnp.stack([b, 2 * b])[:, :, i],
    "picks of each row": lambda a, b, i: jnp.take_along_axis(b, jnp.argmax(b, 1)[:, None], 1),
    "sums at places": lambda a, b, i: (b.at[i].add(a), b.at[:, i[1]].add(1.0), a.at[i].add(a[:3])),
    "windows": lambda a, b, i: (
        lax.dynamic_slice(b, (i[0], i[2]), (2, 3)),
        lax.dynamic_slice(b, (i.dtype.type(9), i[1]), (2, 3)),
        lax.dynamic_update_slice(b, b[:2, :2] * 2, (i[2], i[0])),
    ),
    "integers": lambda a, b, i: (i + 2) * i - i // 2 + jnp.maximum(i, 1) % 2 + jnp.abs(-i),
    "types": lambda a, b, i: (b.astype(jnp.int32), i.astype(jnp.int8), (a > 0).astype(jnp.uint8)),
    "root of a covariance": lambda a, b, i: jnp.linalg.cholesky(b.T @ b),
    "gradient of a root": jax.grad(
        lambda a, b, i: (jnp.linalg.cholesky(b.T @ b + jnp.diag(a**2)) ** 3).sum()
    ),
    "gradient of a pick": jax.grad(
        lambda a, b, i: (jnp.diagonal(b[:4]) * a).sum() + a[jnp.argmax(b[0])] ** 2
    ),
    "a matrix without a root": lambda a, b, i: jnp.linalg.cholesky(-jnp.eye(3) * a[0] ** 2),
    "triangular systems": of_triangular_systems,
    "complex numbers": of_complex_numbers,
    "a loop of no steps": lambda a, b, i: lax.fori_loop(0, 0, lambda _, c: 2 * c, a),
    "a scan": lambda a, b, i: lax.scan(lambda c, x: (c * 0.5 + x, c.sum()), a, b),
}

NOT_IN_ONNX = {
    "places beyond the end": lambda a, b, i: (
        jnp.take(a, i + 2, mode="fill"),
        jnp.take(a, i + 2, mode="clip"),
        a.at[i + 2].set(7.0),
    ),
    "values at places": lambda a, b, i: (a.at[i].set(1.0), b.at[i[1]].set(a), b.at[i, 0].set(3.0)),
    "the largest ones": lambda a, b, i: lax.top_k(jnp.floor(b), 2) + lax.top_k(a, 3),
    "places of the smallest": lambda a, b, i: (jnp.argmin(b, 1), jnp.argmin(a)),
    "rounding": lambda a, b, i: jnp.round(10 * b) + lax.round(b, lax.RoundingMethod.AWAY_FROM_ZERO),
    "other functions": lambda a, b, i: jnp.cbrt(b) + jnp.arctan2(a, b) + lax.erfc(b) + lax.erf(b),
    "bits": lambda a, b, i: (i & 3, i | 4, i ^ 1, ~i, i << 2, lax.shift_right_logical(i, i)),
}
