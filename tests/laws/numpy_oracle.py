"""Forward-mode derivatives in NumPy by full Jacobians: an oracle without foretrace's code.

Every quantity is a pair of its value (n,) and its Jacobian (n, P) by all P parameters. A layer of
LRUs follows Eq. 12 to 17 of the paper, with `past` the columns that a rule carries:

    dh_t = lam past + dh_t/dtheta + (dh_t/dx_t) dx_t

The gradient is the sum of each step's error times this Jacobian (Eq. 15 to 17): under ONLINE `past`
are the sensitivities of Eq. 12 to 14, times the derivatives of lam, gamma and B by what is stored.
"""

from typing import NamedTuple

import numpy as np


class Kept(NamedTuple):
    """Parts of the derivative through time that a rule keeps."""

    below: bool
    """Columns of parameters below the layer, inside a chunk."""
    across: bool
    """Columns of the layer's own parameters, from chunk to chunk."""


RULES = {"ONLINE": Kept(False, True), "HYBRID": Kept(True, True), "BPTT": Kept(True, False)}


class Oracle:
    """The gradient of a sequence under a rule.

    Args:
        parameters: arrays by name; the blocks' arrays have the layers on the first axis.
        depth: number of blocks.
        rule: name of the rule.
    """

    def __init__(self, parameters, depth, rule):
        self.parameters, self.depth, self.kept = parameters, depth, RULES[rule]
        ends = np.cumsum([array.size for array in parameters.values()])
        self.count = ends[-1]
        self.columns = {
            name: np.arange(end - array.size, end).reshape(array.shape)
            for (name, array), end in zip(parameters.items(), ends, strict=True)
        }

    def gradient(self, xs, ys, mask, reset, lengths):
        """Return `sum_t mask_t loss_t` of softmax cross entropy, its derivatives by name, and e.

        e are the columns that each layer carries on, by the names of its own parameters.
        """
        total, gradient = 0.0, np.zeros(self.count)
        starts = set(np.cumsum([0, *lengths[:-1]]))
        sizes = [len(nu_log) for nu_log in self.parameters["blocks.cell.nu_log"]]
        states = [(np.zeros(size), None) for size in sizes]
        for t, (x, y) in enumerate(zip(xs, ys, strict=True)):
            now = self._linear("encoder", None, (x, np.zeros((len(x), self.count))))
            for layer in range(self.depth):
                states[layer] = self._before(states[layer], layer, reset[t], t in starts)
                now, states[layer] = self._block(layer, now, states[layer])
            value, jacobian = self._linear("decoder.linear", None, now)
            odds = np.exp(value - value.max())
            chances = odds / odds.sum()
            total -= mask[t] * np.log(chances[y])
            gradient += mask[t] * (chances - np.eye(len(value))[y]) @ jacobian
        e = [
            {
                name.removeprefix("blocks.cell."): jacobian[:, columns[layer]]
                for name, columns in self.columns.items()
                if name.startswith("blocks.cell.")
            }
            for layer, (_, jacobian) in enumerate(states)
        ]
        return total, {name: gradient[columns] for name, columns in self.columns.items()}, e

    def _value(self, name, layer):
        return self.parameters[name] if layer is None else self.parameters[name][layer]

    def _direct(self, jacobian, name, layer, derivative):
        """Add the derivative (n, *shape) by a parameter itself."""
        columns = self.columns[name] if layer is None else self.columns[name][layer]
        jacobian[:, columns.ravel()] += derivative.reshape(len(jacobian), -1)

    def _linear(self, name, layer, x):
        weight, bias = (self._value(f"{name}.{part}", layer) for part in ("weight", "bias"))
        jacobian = weight @ x[1]
        self._direct(
            jacobian, f"{name}.weight", layer, np.einsum("ij,k->ijk", np.eye(len(weight)), x[0])
        )
        self._direct(jacobian, f"{name}.bias", layer, np.eye(len(weight)))
        return weight @ x[0] + bias, jacobian

    def _norm(self, layer, x):
        scale, bias = (
            self._value("blocks.norm.scale", layer),
            self._value("blocks.norm.bias", layer),
        )
        away, d_away = x[0] - x[0].mean(), x[1] - x[1].mean(0)
        width = np.sqrt(np.mean(away**2) + 1e-5)
        d_width = np.mean(away[:, None] * d_away, axis=0) / width
        jacobian = scale[:, None] * (d_away / width - np.outer(away, d_width) / width**2)
        self._direct(jacobian, "blocks.norm.scale", layer, np.diag(away / width))
        self._direct(jacobian, "blocks.norm.bias", layer, np.eye(len(away)))
        return scale * away / width + bias, jacobian

    def _before(self, state, layer, starts_episode, starts_chunk):
        """Return the state before a step, with the columns of its Jacobian that the rule keeps."""
        h, jacobian = state
        if jacobian is None or starts_episode:
            return np.zeros_like(h) if starts_episode else h, np.zeros(
                (len(h), self.count), complex
            )
        own = np.zeros(self.count, bool)
        for name, columns in self.columns.items():
            own[columns[layer].ravel() if name.startswith("blocks.cell.") else []] = True
        if starts_chunk:
            return h, jacobian * (own & self.kept.across)
        return h, jacobian * (own | self.kept.below)

    def _block(self, layer, x, state):
        z = self._norm(layer, x)
        h, y = self._lru(layer, z, state)
        s = np.sqrt(2 / np.pi)
        tanh = np.tanh(s * (y[0] + 0.044715 * y[0] ** 3))
        slope = 0.5 * (1 + tanh) + 0.5 * y[0] * (1 - tanh**2) * s * (1 + 3 * 0.044715 * y[0] ** 2)
        both, jacobian = self._linear(
            "blocks.glu.linear", layer, (0.5 * y[0] * (1 + tanh), slope[:, None] * y[1])
        )
        (value, gate), (d_value, d_gate) = np.split(both, 2), np.split(jacobian, 2)
        gate = 1 / (1 + np.exp(-gate))
        d_gate = (gate * (1 - gate))[:, None] * d_gate
        return (x[0] + value * gate, x[1] + gate[:, None] * d_value + value[:, None] * d_gate), h

    def _lru(self, layer, x, state):
        """Eq. 8 and 9, and Eq. 12 for lam, 13 for gamma, 14 for B, by the stored parameters."""
        own = {
            name: self._value(f"blocks.cell.{name}", layer)
            for name in ("nu_log", "theta_log", "gamma_log", "B_re", "B_im", "C_re", "C_im", "D")
        }
        lam = np.exp(-np.exp(own["nu_log"]) + 1j * np.exp(own["theta_log"]))
        gamma, B, C = (
            np.exp(own["gamma_log"]),
            own["B_re"] + 1j * own["B_im"],
            own["C_re"] + 1j * own["C_im"],
        )
        before, past = state
        jacobian = lam[:, None] * past + (gamma[:, None] * B) @ x[1]
        outer = gamma[:, None, None] * np.einsum("ij,k->ijk", np.eye(len(lam)), x[0])
        found = {"gamma_log": np.diag(gamma * (B @ x[0])), "B_re": outer, "B_im": 1j * outer}
        found["nu_log"] = np.diag(-np.exp(own["nu_log"]) * lam * before)
        found["theta_log"] = np.diag(1j * np.exp(own["theta_log"]) * lam * before)
        self._direct_cell(jacobian, layer, found)
        h = lam * before + gamma * (B @ x[0])
        y = (C @ jacobian).real + own["D"][:, None] * x[1]
        by_C = np.einsum("ij,k->ijk", np.eye(len(C)), h)
        self._direct_cell(y, layer, {"C_re": by_C.real, "C_im": -by_C.imag, "D": np.diag(x[0])})
        return (h, jacobian), ((C @ h).real + own["D"] * x[0], y)

    def _direct_cell(self, jacobian, layer, derivatives):
        for name, derivative in derivatives.items():
            self._direct(jacobian, f"blocks.cell.{name}", layer, derivative)
