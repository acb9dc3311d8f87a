"""Streams of cues for `reach.py`, which describes them; NumPy only."""

import numpy as np

LABELS = {"copy": 200, "xor": 1000, "select": 1000}
INPUTS = {"copy": 3, "xor": 3, "select": 27}


def make(task, delay, labels, seed):
    """Return inputs (T, I), labels (T,) and which rows have one."""
    draw, rows = np.random.default_rng(seed), (labels + 1) * delay
    cues = np.arange(delay - 1, rows, delay)
    bits = draw.integers(0, 2, (len(cues), INPUTS[task] - 1))
    xs, ys, asked = np.zeros((rows, INPUTS[task])), np.zeros(rows, np.int32), np.zeros(rows, bool)
    xs[cues, 0], xs[cues, 1:] = 1, 2 * bits - 1
    if task == "copy":
        xs[:, 2] = 0
    answers = bits[:, 0] ^ bits[:, 1] if task == "xor" else bits[:, 0]
    ys[cues[1:]], asked[cues[1:]] = answers[:-1], True
    return xs, ys, asked


def as_rows(xs, ys, asked):
    """Yield the rows of a stream for a peer; a silent row is empty."""
    for x, y, known in zip(xs.tolist(), ys.tolist(), asked.tolist(), strict=True):
        yield {f"x{j}": v for j, v in enumerate(x) if v}, y if known else None
