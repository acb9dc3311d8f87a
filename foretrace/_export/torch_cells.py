"""PyTorch source of each cell for `to_torch`: the functions `cell_start` and `cell_step`."""

from foretrace._cells.abstract import AbstractCell
from foretrace._cells.gru import GRU
from foretrace._cells.lru import LRU
from foretrace._cells.min_gru import MinGRU
from foretrace._cells.s5 import S5

_LRU = '''
def cell_start(p):
    """Return the state before the first step: complex, one number for each module."""
    return torch.zeros_like(torch.complex(p["nu_log"], p["nu_log"]))


def cell_step(p, h, x):
    """Linear recurrent unit: h = lam * h + gamma * (B x), y = Re[C h] + D * x."""
    lam = torch.exp(torch.complex(-p["nu_log"].exp(), p["theta_log"].exp()))
    gamma = p["gamma_log"].exp()[:, None]
    B, C = torch.complex(gamma * p["B_re"], gamma * p["B_im"]), torch.complex(p["C_re"], p["C_im"])
    h = lam * h + x.to(B.dtype) @ B.T
    return h, (h @ C.T).real + p["D"] * x
'''

_S5 = '''
def cell_start(p):
    """Return the state before the first step: complex, one number for each module."""
    return torch.zeros_like(torch.complex(p["A_log"], p["A_im"]))


def cell_step(p, h, x):
    """State space model: h = exp(lam s) h + (exp(lam s) - 1) / lam * (B x), y = Re[C h] + D x."""
    lam = torch.complex(-p["A_log"].exp(), p["A_im"])
    grown = lam * p["step_log"].exp()
    # exp(grown) - 1 without cancellation.
    re = torch.expm1(grown.real) * torch.cos(grown.imag) - 2 * torch.sin(grown.imag / 2) ** 2
    held = torch.complex(re, torch.exp(grown.real) * torch.sin(grown.imag)) / lam
    B, C = held[:, None] * torch.complex(p["B_re"], p["B_im"]), torch.complex(p["C_re"], p["C_im"])
    h = torch.exp(grown) * h + x.to(B.dtype) @ B.T
    return h, (h @ C.T).real + p["D"] * x
'''

_MIN_GRU = '''
def cell_start(p):
    """Return the state before the first step."""
    return torch.zeros_like(p["b"])


def cell_step(p, h, x):
    """Minimal gated recurrent unit: z = sigmoid(W_z x + b_z), h = (1 - z) * h + z * (W x + b)."""
    z = torch.sigmoid(x @ p["W_z"].T + p["b_z"])
    h = (1 - z) * h + z * (x @ p["W"].T + p["b"])
    return h, h
'''

_GRU = '''
def cell_start(p):
    """Return the state before the first step."""
    return torch.zeros_like(p["b_hn"])


def cell_step(p, h, x):
    """Gated recurrent unit, reset after the recurrent product; gates in the order r, z, n."""
    past = torch.einsum("ngm,...m->...gn", p["W_h"], h)
    present = torch.einsum("ngh,...h->...gn", p["W_i"], x) + p["b_i"].T
    r = torch.sigmoid(past[..., 0, :] + present[..., 0, :])
    z = torch.sigmoid(past[..., 1, :] + present[..., 1, :])
    n = torch.tanh(present[..., 2, :] + r * (past[..., 2, :] + p["b_hn"]))
    h = (1 - z) * n + z * h
    return h, h
'''

CELLS: dict[type[AbstractCell], str] = {LRU: _LRU, S5: _S5, MinGRU: _MIN_GRU, GRU: _GRU}
"""The cells that can be written in PyTorch, with their source."""
