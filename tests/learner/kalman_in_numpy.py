"""The node-decoupled filter with a head by least squares, in NumPy alone, without autodiff.

Derivatives of one step are taken by the complex step, which is exact to the last digits: f(x + i
d).imag / d for a tiny d. Modules go one by one, streams and outputs by loops.
"""

import numpy as np

TINY = 1e-40


def slope(function, at, direction):
    return np.imag(function(at + 1j * TINY * direction)) / TINY


def jacobian(function, at):
    return np.stack([slope(function, at, unit) for unit in np.eye(at.size)], axis=-1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Latch:
    """One set/reset module: parameters [W (4, n), b (4), W_o (n), b_o] behind each other."""

    def __init__(self, cell, index):
        parts = [cell.W[index], cell.b[index]]
        parts += [] if cell.W_o is None else [cell.W_o[index], cell.b_o[index]]
        self.theta = np.concatenate([np.ravel(part) for part in parts]).astype(float)
        self.products, self.gain, self.n = cell.W_o is not None, cell.gain[index], cell.input_size
        self.size = 1

    def step(self, theta, h, x):
        n = self.n
        q = sigmoid(theta[: 4 * n].reshape(4, n) @ x + theta[4 * n : 4 * n + 4])
        s, r = q[0] * q[1], q[2] * q[3]
        return (1 - s) * (1 - r) * h + s - r

    def emit(self, theta, h, x):
        y = self.gain * h
        if not self.products:
            return y
        out = np.tanh(theta[4 * self.n + 4 : -1] @ x + theta[-1])
        return np.concatenate([y, y * out])


class Turn:
    """One rotation: parameters in the order of the cell's fields, behind each other."""

    NAMES = ("a", "p", "b_u", "b_v", "W_a", "W_p", "W_u", "W_v")

    def __init__(self, cell, index):
        self.theta = np.concatenate(
            [np.ravel(getattr(cell, name)[index]) for name in self.NAMES]
        ).astype(float)
        self.n, self.size = cell.input_size, 2

    def step(self, theta, h, x):
        a, p, b_u, b_v = theta[:4]
        W_a, W_p, W_u, W_v = theta[4:].reshape(4, self.n)
        m = 1 / (1 + np.exp(W_a @ x + a))
        turn, gain = W_p @ x + p, np.sqrt(1 - m * m)
        u = m * (np.cos(turn) * h[0] - np.sin(turn) * h[1]) + gain * np.tanh(W_u @ x + b_u)
        v = m * (np.sin(turn) * h[0] + np.cos(turn) * h[1]) + gain * np.tanh(W_v @ x + b_v)
        return np.stack([u, v])

    def emit(self, theta, h, x):
        return h


def modules_of(network):
    """Return the modules of a network of one layer, cell by cell."""
    kinds = {"SetReset": Latch, "Rotation": Turn}
    return [
        kinds[type(cell).__name__](cell, i)
        for cell in network.layers[0]
        for i in range(cell.state_size)
    ]


class Filter:
    """The whole learner: modules, covariances, head, moments of the errors."""

    def __init__(self, network, optimizer, head, streams):
        self.modules, self.network, self.o = modules_of(network), network, optimizer
        self.head, self.streams, self.outputs = head, streams, network.output_size
        self.U = [optimizer.prior * np.eye(module.theta.size) for module in self.modules]
        features = 1 + network.feature_size
        self.P, self.W = head.prior * np.eye(features), np.zeros((features, self.outputs))
        self.h = [[np.zeros(module.size) for module in self.modules] for _ in range(streams)]
        self.S = [[np.zeros((m.size, m.theta.size)) for m in self.modules] for _ in range(streams)]
        self.square = self.lagged = 0.0
        self.count, self.last = 0, np.zeros((streams, self.outputs))

    def emitted(self, stream, x):
        return [m.emit(m.theta, h, x) for m, h in zip(self.modules, self.h[stream], strict=True)]

    def features(self, stream, x):
        """Return F = [1, x, emitted]: the first outputs of a cell's modules, then the second."""
        found, at = [], 0
        emitted = self.emitted(stream, x)
        for cell in self.network.layers[0]:
            mine = np.stack(emitted[at : at + cell.state_size])
            found.append(mine.T.ravel())
            at += cell.state_size
        return np.concatenate([[1.0], x, *found])

    def rows_of_head(self):
        """Return for each module the entries of F that are its outputs."""
        places, at = [], 1 + self.network.input_size
        for cell in self.network.layers[0]:
            width = cell.output_size // cell.state_size
            for i in range(cell.state_size):
                places.append([at + k * cell.state_size + i for k in range(width)])
            at += cell.output_size
        return places

    def advance(self, stream, x, reset):
        for i, m in enumerate(self.modules):
            if reset:
                self.h[stream][i] = np.zeros(m.size)
                self.S[stream][i] = np.zeros_like(self.S[stream][i])
            h, theta = self.h[stream][i].astype(complex), m.theta.astype(complex)
            by_h = jacobian(lambda h, m=m: m.step(m.theta, h, x), h)
            by_theta = jacobian(lambda t, m=m, h=h: m.step(t, h, x), theta)
            self.S[stream][i] = by_h @ self.S[stream][i] + by_theta
            self.h[stream][i] = m.step(m.theta, self.h[stream][i], x)

    def jacobians(self, stream, x):
        """Return J_i = W_i^T D_i of each module, D_i the sensitivity of its outputs."""
        found = []
        for m, h, S, rows in zip(
            self.modules, self.h[stream], self.S[stream], self.rows_of_head(), strict=True
        ):
            by_h = jacobian(lambda h, m=m: m.emit(m.theta, h, x), h.astype(complex))
            by_theta = jacobian(lambda t, m=m, h=h: m.emit(t, h, x), m.theta.astype(complex))
            found.append(self.W[rows].T @ (by_h @ S + by_theta))
        return found

    def row(self, xs, targets, weights, resets):
        """Learn one row of every stream; return the predictions before."""
        for b in range(self.streams):
            self.advance(b, xs[b], resets[b])
        F = np.stack([self.features(b, xs[b]) for b in range(self.streams)])
        predicted = F @ self.W
        known = weights > 0
        if not known.any():
            return predicted
        limit = 3 * np.sqrt(max(self.square, 1e-6)) if self.count >= 10 else np.inf
        e = np.where(known[:, None], np.clip(targets - predicted, -limit, limit), 0.0)
        self.note(e, known)
        root = np.sqrt(weights)
        G = (root[:, None] * F) @ self.P @ (root[:, None] * F).T
        if self.count > self.o.warmup:
            self.learn_modules(xs, root[:, None] * e, root, G)
        self.learn_head(root[:, None] * F, root[:, None] * e, G, known.sum())
        return predicted

    def note(self, e, known):
        n = known.sum()
        self.count += n
        rate = min(1, n / min(max(self.count, 1), 300))
        self.square += rate * ((e[known] ** 2).mean() - self.square)
        self.lagged += rate * ((e[known] * self.last[known]).mean() - self.lagged)
        self.last = np.where(known[:, None], e, self.last)

    def learn_modules(self, xs, e, root, G):
        R = max(self.square, 1e-6)
        rho = np.clip(self.lagged / R, 0, 0.99) if self.o.autocorrelation else 0.0
        v = (1 + rho) / (1 - rho) * (1 + self.o.delay)
        per_stream = [self.jacobians(b, xs[b]) for b in range(self.streams)]
        J = [
            np.concatenate([root[b] * per_stream[b][i] for b in range(self.streams)])
            for i in range(len(self.U))
        ]
        noise = (
            np.kron(self.o.measurement_noise * np.eye(self.streams) + G, np.eye(self.outputs))
            * R
            * v
        )
        A = np.linalg.inv(noise + sum(j @ U @ j.T for j, U in zip(J, self.U, strict=True)))
        for i, (j, U) in enumerate(zip(J, self.U, strict=True)):
            change = U @ j.T @ A @ e.ravel()
            more = np.minimum(self.o.process_noise / v, self.o.prior - np.diag(U))
            self.U[i] = U - U @ j.T @ A @ j @ U + np.diag(more)
            self.modules[i].theta = self.modules[i].theta + change
            if self.o.state_correction is not None:
                for b in range(self.streams):
                    limit = self.o.state_correction
                    self.h[b][i] = self.h[b][i] + np.clip(self.S[b][i] @ change, -limit, limit)

    def learn_head(self, F, e, G, labels):
        gain = self.P @ F.T @ np.linalg.inv(np.eye(self.streams) + G)
        self.W = self.W + gain @ e
        after = self.P - gain @ F @ self.P
        scale = np.sqrt(np.minimum(self.head.forget**-labels, self.head.prior / np.diag(after)))
        self.P = scale[:, None] * after * scale
