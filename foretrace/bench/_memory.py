"""Parts of `foretrace bench` about memory: against the length of a sequence, and in 16 bits."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from foretrace._cells.lru import LRU
from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._rule import (
    BPTT,
    HYBRID,
    ONLINE,
    RESERVOIR,
    RTRL,
    SPATIAL,
    TRUNCATED,
    UORO,
    LearningRule,
)
from foretrace._types import Array
from foretrace.bench._parts import Row, Setting, compiled_step
from foretrace.bench._timing import SHAPES, bytes_of, data, learner, ratio, timed


def memory(setting: Setting) -> Iterator[Row]:
    """Temporary memory of a compiled step against the sequence's length, without running it."""
    shape = SHAPES["long"]
    rules = {
        "BPTT": BPTT,
        "online": ONLINE,
        "truncated": TRUNCATED,
        "spatial": SPATIAL,
        "reservoir": RESERVOIR,
    }
    streamed = rules | {"RTRL": RTRL, "hybrid": HYBRID, "UORO": UORO}
    whole = {"whole_sequences": True}
    ways: dict[str, tuple[LearningRule, dict[str, Any], int | None]] = {
        **{f"{name}, whole sequences": (rule, whole, None) for name, rule in rules.items()},
        **{
            f"{name}, in segments of 512": (rules[name], whole | {"segment": 512}, None)
            for name in ("BPTT", "online")
        },
        **{f"{name}, chunks of 64": (rule, {}, 64) for name, rule in streamed.items()},
        "online, row by row": (ONLINE, {}, 1),
    }
    for way, (rule, options, chunk) in ways.items():
        made = learner(shape, rule, batch_size=1, **options)
        state = made.init()
        # A stream runs one program, however long it is.
        needed = {
            steps: compiled_step(
                made, state, *jax.eval_shape(partial(data, shape, 1, steps))
            ).temporary
            for steps in ([chunk] if chunk else setting.lengths)
        }
        sizes = {
            f"T={length}_mib": round(needed[chunk or length] / 2**20, 2)
            for length in setting.lengths
        }
        yield {"way": way, "carry_kib": round(bytes_of(state.carry) / 2**10, 1), **sizes}


def rounding(setting: Setting) -> Iterator[Row]:
    """Sensitivities in bfloat16 beside float32: gradient's error, memory, and time of a step."""
    shape, rows = SHAPES["copy"], 2048
    xs, ys = data(shape, rows)
    for r_min, r_max in ((0.0, 1.0), (0.99, 0.999), (0.999, 0.9999)):
        for chunk in (1, 16):
            cell = LRU.factory(state_size=shape.state, r_min=r_min, r_max=r_max)
            made = [
                learner(shape, ONLINE, cell=cell, accumulate=True, sensitivity_dtype=dtype)
                for dtype in (None, "bfloat16")
            ]
            states = [_after(one, xs, ys, chunk) for one in made]
            exact, near = (ravel_pytree(state.grads)[0] for state in states)
            calls = {
                name: partial(one.step, state, xs[:chunk], ys[:chunk])
                for name, one, state in zip(("float32", "bfloat16"), made, states, strict=True)
            }
            error = float(jnp.linalg.norm(near - exact) / jnp.linalg.norm(exact))
            cosine = float(near @ exact / jnp.linalg.norm(near) / jnp.linalg.norm(exact))
            yield {
                "eigenvalues": f"{r_min:g} to {r_max:g}",
                "chunk": chunk,
                "relative_error": f"{error:.1e}",
                "cosine": f"{cosine:.6f}",
                "memory_over_float32": round(
                    bytes_of(states[1].carry) / bytes_of(states[0].carry), 2
                ),
                "time_over_float32": round(
                    ratio(timed(calls, setting.rounds), "bfloat16", "float32"), 2
                ),
            }


def _after(made: Learner, xs: Array, ys: Array, chunk: int) -> LearnerState:
    state = made.init()
    for i in range(0, len(xs), chunk):
        state, _ = made.step(state, xs[i : i + chunk], ys[i : i + chunk])
    return state
