"""The part of `foretrace bench` about memory: against the length of a sequence."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import jax

from foretrace._rule import (
    BPTT,
    HYBRID,
    ONLINE,
    RESERVOIR,
    RTRL,
    SPATIAL,
    TRUNCATED,
    LearningRule,
)
from foretrace.bench._parts import Row, Setting, compiled_step
from foretrace.bench._timing import SHAPES, bytes_of, data, learner


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
    streamed = rules | {"RTRL": RTRL, "hybrid": HYBRID}
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
