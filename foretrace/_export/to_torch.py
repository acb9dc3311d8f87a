"""Write a network as one readable PyTorch file, and its parameters as another."""

import importlib.metadata
import os
from pathlib import Path
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np
from safetensors.numpy import save as to_bytes

from foretrace._export.torch_cells import CELLS
from foretrace._network import Network
from foretrace._runs.files import write_atomically


class TorchFiles(NamedTuple):
    """The files of `to_torch`.

    Args:
        source: Python file with the class `Network`.
        weights: file with its parameters (safetensors).
    """

    source: Path
    weights: Path


_SOURCE = '''"""A recurrent network in PyTorch, written by foretrace {version}.

    network = Network()                  # parameters from {weights}
    outputs = network(xs)                # xs (T, ..., {inputs}) -> (T, ..., {outputs})
    y, state = network.step(network.start(), x)
"""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.nn.functional import gelu, linear

DEPTH = {depth}
{cell}

def layer_norm(p, x):
    centred = x - x.mean(-1, keepdim=True)
    scale = torch.rsqrt((centred**2).mean(-1, keepdim=True) + {eps})
    return centred * scale * p["scale"] + p["bias"]


class Network(torch.nn.Module):
    """Encoder, {depth} recurrent blocks, decoder."""

    def __init__(self, weights=Path(__file__).with_name("{weights}")):
        super().__init__()
        for name, value in load_file(weights).items():
            self.register_parameter(name.replace(".", "__"), torch.nn.Parameter(value))

    def part(self, name, layer=None):
        """Return the parameters of a part of the network, or of one of its layers, by name."""
        found, front = {{}}, name.replace(".", "__") + "__"
        for key, value in self.named_parameters():
            if key.startswith(front):
                found[key.removeprefix(front)] = value if layer is None else value[layer]
        return found

    def start(self):
        """Return the state of each layer before the first step."""
        return [cell_start(self.part("blocks.cell", layer)) for layer in range(DEPTH)]

    def step(self, state, x):
        """Return the outputs of one step, and the state of each layer after it."""
        after, x = [], linear(x, **self.part("encoder"))
        for layer, h in enumerate(state):
{block}
            after.append(h)
{decoder}
        return linear(x, **self.part("decoder.linear")), after

    def forward(self, xs):
        """Return the outputs of a sequence; time is the first axis."""
        state, outputs = self.start(), []
        for x in xs:
            y, state = self.step(state, x)
            outputs.append(y)
        return torch.stack(outputs)
'''


def to_torch(network: Network, path: str | os.PathLike[str]) -> TorchFiles:
    """Write a network as a readable PyTorch file that needs only torch and safetensors.

    The file has a class `Network` with `start`, `step` and `forward`. Its parameters are instances
    of `torch.nn.Parameter`, so PyTorch can train the network. Dropout is not written.

    Args:
        network: network of LRU, S5, MinGRU or GRU cells.
        path: Python file to write, such as model.py. The parameters are written into the same
            folder (`.weights.safetensors`).

    Returns:
        The paths of both files.

    Raises:
        TypeError: the model is not a network of equal blocks.
        ValueError: the cell cannot be written in PyTorch, the network has a cumulative mean, or the
            path does not end in .py.
        OSError: the folder is missing or not writable.

    >>> import foretrace as ft, jax, tempfile
    >>> network = ft.Network(
    ...     2, 1, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(0)
    ... )
    >>> ft.to_torch(network, tempfile.mkdtemp() + "/model.py").weights.name
    'model.weights.safetensors'
    """
    if not isinstance(network, Network):
        raise TypeError(f"to_torch(network={type(network).__name__}) must be a foretrace.Network")
    path, cell = Path(path), type(network.blocks.cell)
    if cell not in CELLS:
        known = ", ".join(kind.__name__ for kind in CELLS)
        raise ValueError(
            f"to_torch has no form of {cell.__name__}, only of {known}; use foretrace.export "
            "instead"
        )
    if network.cumulative_mean:
        raise ValueError(
            "to_torch: a network with cumulative_mean=True has no single step; train one without it"
        )
    if path.suffix != ".py":
        raise ValueError(f"to_torch(path={str(path)!r}) must end in .py: it is a Python file")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {path}: there is no folder {path.parent}; make it first"
        )
    files = TorchFiles(path, path.with_suffix(".weights.safetensors"))
    arrays = {}
    for place, leaf in jax.tree.leaves_with_path(eqx.filter(network, eqx.is_array)):
        array = np.asarray(leaf)
        name = jax.tree_util.keystr(place, simple=True, separator=".")
        arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
    write_atomically(files.weights, to_bytes(arrays))
    write_atomically(files.source, _source(network, files.weights.name).encode())
    return files


def _source(network: Network, weights: str) -> str:
    blocks = network.blocks
    lines = ['y = gelu(y, approximate="tanh")']
    if blocks.glu is not None:
        lines += ['value, gate = linear(y, **self.part("blocks.glu.linear", layer)).chunk(2, -1)']
        lines += ["y = value * torch.sigmoid(gate)"]
    normalise = 'layer_norm(self.part("blocks.norm", layer), {})'
    before = normalise.format("x") if blocks.norm_place == "pre" else "x"
    lines = [f'h, y = cell_step(self.part("blocks.cell", layer), h, {before})', *lines]
    lines += [f"x = {normalise.format('x + y')}" if blocks.norm_place == "post" else "x = x + y"]
    hidden = network.decoder.hidden is not None
    return _SOURCE.format(
        version=importlib.metadata.version("foretrace"),
        weights=weights,
        inputs=network.input_size,
        outputs=network.output_size,
        depth=network.depth,
        cell=CELLS[type(blocks.cell)],
        eps=1e-5 if blocks.norm is None else blocks.norm.eps,
        block="\n".join(" " * 12 + line for line in lines),
        decoder="        # The decoder.\n"
        + '        x = torch.relu(linear(x, **self.part("decoder.hidden")))' * hidden,
    ).replace("        # The decoder.\n\n", "")
