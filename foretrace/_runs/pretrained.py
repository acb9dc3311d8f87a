"""A network in a file that says how to build it, so that no code of the user is needed."""

import dataclasses
import inspect
import os
from typing import Any, NamedTuple

import jax

from foretrace._cells.registry import CELLS
from foretrace._network import Network
from foretrace._runs.checkpoint import load, read_extra, restoring, save

DTYPES = ("float32", "float64")


class _Description(NamedTuple):
    """What builds a network of the same structure.

    Args:
        network: arguments of the network but for its cell and its key.
        cell: name of the cell.
        options: arguments of the cell's factory.
        dtype: type of the parameters.
    """

    network: dict[str, Any]
    cell: str
    options: dict[str, Any]
    dtype: str

    def init(self) -> Network:
        """Return a network of this structure; `load` asks for its shapes alone."""
        if self.cell not in CELLS:
            raise ValueError(f"the cell {self.cell!r} is unknown; the cells are {', '.join(CELLS)}")
        if self.dtype not in DTYPES:
            raise ValueError(f"dtype={self.dtype!r} must be one of {', '.join(DTYPES)}")
        options = {k: tuple(v) if isinstance(v, list) else v for k, v in self.options.items()}
        cell, key = CELLS[self.cell].factory(**options), jax.random.key(0)
        network = Network(**self.network, cell=cell, key=key)
        # In 32-bit mode a network of float64 differs from this one, and `load` says so.
        dtype = jax.dtypes.canonicalize_dtype(self.dtype)
        return jax.tree.map(lambda leaf: leaf.astype(dtype), network)


def save_pretrained(network: Network, path: str | os.PathLike[str]) -> None:
    """Write a network into a file from which `from_pretrained` builds it without the user's code.

    Args:
        network: network with a cell of foretrace.
        path: file to write; its folder must exist. An existing file stays as it was until the new
            one is complete.

    Raises:
        TypeError: not a network, one with a cell of the user's own, or of another type than float32
            or float64.
        OSError: the file cannot be written; an existing one is unharmed.

    >>> import foretrace as ft, jax, os, tempfile
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> path = os.path.join(tempfile.mkdtemp(), "network.safetensors")
    >>> ft.save_pretrained(network, path)
    >>> ft.from_pretrained(path).depth
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
            "is none: whoever reads the file could not make it; use foretrace.save, and load it "
            "with your own code"
        )
    dtypes = sorted({str(leaf.dtype) for leaf in jax.tree.leaves(network)})
    if len(dtypes) > 1 or dtypes[0] not in DTYPES:
        raise TypeError(
            f"save_pretrained writes float32 or float64, not {', '.join(dtypes)}; cast the network "
            "first"
        )
    hidden = network.decoder.hidden
    sizes = ("input_size", "output_size", "model_size", "depth", "cumulative_mean")
    arguments = {name: getattr(network, name) for name in sizes} | {
        "glu": blocks.glu is not None,
        "norm": blocks.norm_place,
        "norm_eps": 1e-5 if blocks.norm is None else blocks.norm.eps,
        "dropout": blocks.dropout,
        "readout_size": None if hidden is None else hidden.bias.size,
    }
    described = _Description(arguments, type(cell).__name__, _options(cell), dtypes[0])
    save(path, network, extra=described._asdict())


def from_pretrained(path: str | os.PathLike[str]) -> Network:
    """Return the network that `save_pretrained` wrote; nothing in the file is executed.

    Raises:
        FileNotFoundError: no such file.
        CheckpointError: a file that is damaged, of a newer format, or no network.
    """
    extra = read_extra(path)
    with restoring(path):
        network: Network = load(path, _Description(**extra))
        return network


def _options(cell: Any) -> dict[str, Any]:
    """Return the arguments of the factory that makes a cell of the same structure."""
    taken = inspect.signature(type(cell)).parameters
    static = [field.name for field in dataclasses.fields(cell) if field.metadata.get("static")]
    options = {name: getattr(cell, name) for name in static if name in taken}
    del options["input_size"]
    if "states_per_channel" in taken:  # its number of states is a product
        options["states_per_channel"] = cell.state_size // cell.input_size
    if hasattr(cell, "num_outputs"):
        # As many states as make the network's outputs; of an odd number one is left out.
        del options["state_size"]
    if hasattr(cell, "shortest"):
        options["timescales"] = (cell.shortest, cell.longest)
    if "products" in taken:
        options["products"] = cell.W_o is not None
    return options
