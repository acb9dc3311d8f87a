"""Simple predictions of a column's discounted future, beside an agent. NumPy only.

They are the best constant, the last value, and linear predictions from a window of the last rows.
"""

import numpy as np


def errors(series, discount, steps, predictions):
    """Return the error over the last tenth, as a share of the values' variance, and by block."""
    values, known = series.values(discount)
    squared = np.where(known[:steps], (predictions - values[:steps]) ** 2, np.nan) / series.spread(
        discount
    )
    blocks = [block[np.isfinite(block)] for block in np.array_split(squared, 50)]
    return {
        "mean": round(float(np.nanmean(squared[int(0.9 * steps) :])), 4),
        "curves": [[round(float(block.mean()), 3) for block in blocks if block.size]],
    }


def constant(series, discount, steps):
    """Predict the mean of the last tenth: the best constant, known only in hindsight."""
    values, known = series.values(discount)
    last = np.arange(int(0.9 * steps), steps)
    return np.full(steps, values[last][known[last]].mean())


def last_value(series, discount, steps):
    """Predict that the present value goes on."""
    return series.cumulants()[:steps] / (1 - discount)


def windows(series, rows, steps):
    """Yield the features of each row: the last rows, scaled by running moments, and a constant."""
    table = series.table.rows
    mean, squares, window = (
        np.zeros(table.shape[1]),
        np.zeros(table.shape[1]),
        np.zeros((rows, table.shape[1])),
    )
    for t in range(steps + 1):
        away = table[t] - mean
        mean += away / (t + 1)
        squares += away * (table[t] - mean)
        window = np.roll(window, 1, axis=0)
        window[0] = (table[t] - mean) / np.sqrt(squares / max(t, 1) + 1e-8)
        yield np.append(window.ravel(), 1.0)


def linear_td(series, discount, steps, rows, trace_decay, learning_rate):
    """Predict linearly from a window, by TD(lambda) with Adam, as the agent learns."""
    features, cumulants = windows(series, rows, steps), series.cumulants()
    x = next(features)
    weights, trace, first, second, found = (np.zeros(n) for n in (*[x.size] * 4, steps))
    for t in range(steps):
        found[t] = x @ weights
        trace = discount * trace_decay * trace + x
        following = next(features)
        update = -(cumulants[t + 1] + discount * (following @ weights) - found[t]) * trace
        first, second = 0.9 * first + 0.1 * update, 0.999 * second + 0.001 * update**2
        moved = first / (1 - 0.9 ** (t + 1)) / (np.sqrt(second / (1 - 0.999 ** (t + 1))) + 1e-8)
        weights, x = weights - learning_rate * moved, following
    return found


def least_squares_td(series, discount, steps, rows, trace_decay, ridge=1.0):
    """Predict linearly from a window by LSTD(lambda): weights that solve the past at every step.

        A = ridge + sum z (x - discount x')^T,   b = sum z r,   weights = A^-1 b

    The inverse is updated by Sherman and Morrison's formula.

    Source: Bradtke and Barto, Linear least-squares algorithms for temporal difference learning,
        1996; Boyan, 2002.
    """
    features, cumulants = windows(series, rows, steps), series.cumulants()
    x = next(features)
    inverse, right, trace, found = (
        np.eye(x.size) / ridge,
        np.zeros(x.size),
        np.zeros(x.size),
        np.zeros(steps),
    )
    for t in range(steps):
        found[t] = x @ (inverse @ right)
        trace = discount * trace_decay * trace + x
        following = next(features)
        column, row = inverse @ trace, (x - discount * following) @ inverse
        inverse -= np.outer(column, row) / (1 + row @ trace)
        right += trace * cumulants[t + 1]
        x = following
    return found
