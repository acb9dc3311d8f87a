"""The options of a network."""

import dataclasses
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Annotated

import jax
import tyro

from foretrace._compiler import unoptimised
from foretrace._network import Network, NormPlace
from foretrace._options.cells import LRU, AbstractCellConfig, CellConfig
from foretrace._runs.config_json import check_types
from foretrace._runs.programs import described, program
from foretrace._types import PRNGKeyArray


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """The network: encoder, equal blocks, decoder.

    Args:
        depth: number of blocks.
        model_size: number of features between the blocks.
        cell: recurrent layer of every block.
        glu: whether each block has a gated linear unit.
        norm: place of the normalisation in a block.
        norm_eps: constant that is added to the variance of the features before its root is taken.
        dropout: probability that a feature is dropped.
        readout_size: number of hidden units of the decoder. Default: a linear decoder.
        cumulative_mean: decode the mean of the features so far, instead of the features of the
            step. The gradient is that of the features of the step. Only for whole sequences.
    """

    depth: Annotated[int, tyro.conf.arg(aliases=("--depth",))] = 4
    model_size: Annotated[int, tyro.conf.arg(aliases=("--model-size",))] = 128
    cell: Annotated[CellConfig, tyro.conf.arg(name="", constructor=AbstractCellConfig)] = LRU()
    glu: bool = True
    norm: NormPlace = "pre"
    norm_eps: float = 1e-5
    dropout: Annotated[float, tyro.conf.arg(aliases=("--dropout",))] = 0.0
    readout_size: int | None = None
    cumulative_mean: bool = False

    def __post_init__(self) -> None:
        check_types(self)

    def drawn(self, input_size: int, output_size: int, key: PRNGKeyArray) -> Network:
        """Sample a network. The function may be traced."""
        if not isinstance(key, jax.core.Tracer):
            found = _drawing(self, input_size, output_size)(key)
            # The results of a stored program are committed to their device. With some arrays of
            # this kind in its state, a step would be compiled twice.
            return jax.device_put(jax.device_get(found))
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        options["cell"] = self.cell.factory()
        return Network(input_size, output_size, **options, key=key)


@lru_cache(maxsize=4)
def _drawing(
    config: NetworkConfig, input_size: int, output_size: int
) -> Callable[[PRNGKeyArray], Network]:
    """Return `config.drawn` for these sizes as a program that runs once."""
    draw = partial(config.drawn, input_size, output_size)
    of = described((config, input_size, output_size))
    form = partial(jax.eval_shape, draw)
    return program("network", draw, of, form=form, options=unoptimised())
