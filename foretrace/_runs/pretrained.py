"""A network as a folder: `config.json` to build it, `model.safetensors` with its parameters."""

import dataclasses
import importlib.metadata
import inspect
import json
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import load_file
from safetensors.numpy import save as to_bytes

from foretrace._cells.registry import CELLS
from foretrace._network import Network
from foretrace._runs.checkpoint import CheckpointError, named
from foretrace._runs.config_json import parse
from foretrace._runs.files import write_atomically

FORMAT = 1
CONFIG, MODEL = "config.json", "model.safetensors"
DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def save_pretrained(network: Network, folder: str | os.PathLike[str]) -> None:
    """Write a network into a folder from which `from_pretrained` builds it without the user's code.

    Args:
        network: network with a cell of foretrace.
        folder: folder for `config.json` and `model.safetensors`; it is made if it is missing.

    Raises:
        TypeError: not a network, one with a cell of the user's own, or of another type than float32
            or float64.
        OSError: a file cannot be written; an existing one is unharmed.

    >>> import foretrace as ft, jax, os, tempfile
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> folder = os.path.join(tempfile.mkdtemp(), "my-network")
    >>> ft.save_pretrained(network, folder)
    >>> sorted(os.listdir(folder))
    ['config.json', 'model.safetensors']
    >>> ft.from_pretrained(folder).depth
    2
    """
    if not isinstance(network, Network):
        raise TypeError(
            f"save_pretrained(network={type(network).__name__}) must be a foretrace.Network"
        )
    blocks, cell = network.blocks, network.blocks.cell
    if type(cell) is not CELLS.get(type(cell).__name__):
        raise TypeError(
            f"save_pretrained writes networks with a cell of foretrace, and {type(cell).__name__} "
            "is none: whoever reads the folder could not make it; use foretrace.save, and load it "
            "with your own code"
        )
    hidden = network.decoder.hidden
    sizes = ("input_size", "output_size", "model_size", "depth", "cumulative_mean")
    options = {
        "glu": blocks.glu is not None,
        "norm": blocks.norm_place,
        "norm_eps": 1e-5 if blocks.norm is None else blocks.norm.eps,
        "dropout": blocks.dropout,
        "readout_size": None if hidden is None else hidden.bias.size,
    }
    config = {
        "format": FORMAT,
        "foretrace": importlib.metadata.version("foretrace"),
        "network": {name: getattr(network, name) for name in sizes} | options,
        "cell": {
            "type": type(cell).__name__,
            **{name: getattr(cell, name) for name in _fields(type(cell), True)},
        },
    }
    arrays = {name: np.ascontiguousarray(leaf) for name, leaf in named(network)}
    if others := sorted(
        {str(array.dtype) for array in arrays.values() if array.dtype not in DTYPES}
    ):
        raise TypeError(
            f"save_pretrained writes float32 or float64, not {', '.join(others)}; cast the network "
            "first"
        )
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / MODEL, to_bytes(arrays))
    write_atomically(path / CONFIG, (json.dumps(config, indent=2) + "\n").encode())


def from_pretrained(folder: str | os.PathLike[str]) -> Network:
    """Return the network that `save_pretrained` wrote; nothing in the folder is executed.

    Raises:
        FileNotFoundError: a file is missing.
        CheckpointError: a file that is damaged or of a newer format, or files that do not belong
            together.
    """
    path = Path(folder)
    for name in (CONFIG, MODEL):
        if not (path / name).is_file():
            raise FileNotFoundError(
                f"no {name} in {path}: give the folder that foretrace.save_pretrained wrote"
            )
    try:
        config = parse((path / CONFIG).read_text())
        arrays = load_file(path / MODEL)
    except Exception as error:  # whatever safetensors, NumPy and JSON say to a damaged file
        raise CheckpointError(f"{path} cannot be read ({error})") from error
    if not isinstance(config, dict) or config.get("format") != FORMAT:
        raise CheckpointError(
            f"{path / CONFIG} is not of format {FORMAT}, which this version of foretrace reads"
        )
    try:
        return _assembled(config["network"], config["cell"], arrays)
    except Exception as error:  # a network says in many ways that it cannot be made
        raise CheckpointError(
            f"{path}: {CONFIG} and {MODEL} do not make a network ({error})"
        ) from error


def _assembled(
    settings: dict[str, Any], cell: dict[str, Any], arrays: dict[str, np.ndarray]
) -> Network:
    like = eqx.filter_eval_shape(
        lambda key: Network(**settings, cell=_factory(cell, arrays), key=key), jax.random.key(0)
    )
    for name in _fields(type(like.blocks.cell), static=True):
        made = getattr(like.blocks.cell, name)
        if type(cell[name]) is not type(made) or cell[name] != made:
            raise ValueError(
                f"cell.{name}={cell[name]!r} does not fit the network, which needs {made!r}"
            )
    want = dict(named(like))
    if set(want) != set(arrays):
        raise ValueError(f"the parameters differ: {', '.join(sorted(set(want) ^ set(arrays)))}")
    dtype = arrays[min(arrays)].dtype
    if dtype not in DTYPES:
        raise ValueError(f"the parameters are {dtype}, expected float32 or float64")
    if dtype == np.float64 and not jax.config.read("jax_enable_x64"):
        raise ValueError(
            "the parameters are float64; set jax_enable_x64 before the network is read"
        )
    for name, leaf in want.items():
        found = arrays[name]
        if found.shape != leaf.shape or found.dtype != dtype:
            raise ValueError(
                f"{name} is {found.dtype}{list(found.shape)}, expected {dtype}{list(leaf.shape)}"
            )
    network: Network = jax.tree.unflatten(
        jax.tree.structure(like), [jnp.asarray(arrays[name]) for name in want]
    )
    return network


def _factory(cell: dict[str, Any], parameters: Collection[str]) -> Any:
    """Return what makes a cell with the static fields in a configuration."""
    kind = CELLS.get(cell["type"])
    if kind is None:
        raise ValueError(f"the cell {cell['type']!r} is unknown; the cells are {', '.join(CELLS)}")
    taken = inspect.signature(kind).parameters
    options = {
        name: cell[name]
        for name in _fields(kind, static=True)
        if name in taken and name != "input_size"
    }
    if "states_per_channel" in taken:  # its number of states is a product
        options["states_per_channel"] = cell["state_size"] // cell["input_size"]
    # As many states as make the network's outputs; of an odd number one is left out.
    if "num_outputs" in cell:
        options.pop("state_size")
    if "shortest" in cell:
        options["timescales"] = (cell["shortest"], cell["longest"])
    if "products" in taken:
        options["products"] = "blocks.cell.W_o" in parameters
    return kind.factory(**options)


def _fields(kind: type, static: bool) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(kind)
        if field.metadata.get("static", False) == static
    ]
