"""The paper's Figure 1: encoder, blocks of (norm, cell, GELU, GLU, dropout, skip), decoder.

Everything in this file acts on one step and knows no time. `foretrace._engine.forward` puts the
recurrence between `Block.before` and `Block.after`.
"""

import abc
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._cells.abstract import AbstractCell
from foretrace._cells.factory import shapes_of
from foretrace._cells.parts import check_key, check_numbers, check_sizes, normal
from foretrace._compiler import unoptimised
from foretrace._types import Array, Float, PRNGKeyArray

NormPlace = Literal["pre", "post", "none"]


class Linear(eqx.Module):
    """`W x + b`. W is normal, divided by the root of the fan-in; b is zero or small and random."""

    weight: Float[Array, "O I"]
    bias: Float[Array, "O"]

    def __init__(
        self, input_size: int, output_size: int, *, key: PRNGKeyArray, bias_scale: float = 0.0
    ):
        weight, bias = jax.random.split(key)
        self.weight = normal(weight, (output_size, input_size), input_size)
        self.bias = bias_scale * jax.random.normal(bias, (output_size,))

    def __call__(self, x: Float[Array, "I"]) -> Float[Array, "O"]:
        return jnp.inner(x, self.weight) + self.bias


class LayerNorm(eqx.Module):
    """`(x - mean) / sqrt(variance + eps) * scale + bias` over the features."""

    scale: Float[Array, "H"]
    bias: Float[Array, "H"]
    eps: float = eqx.field(static=True)

    def __init__(self, size: int, eps: float = 1e-5):
        self.scale, self.bias, self.eps = jnp.ones(size), jnp.zeros(size), eps

    def __call__(self, x: Float[Array, "H"]) -> Float[Array, "H"]:
        centred = x - x.mean()
        return centred * jax.lax.rsqrt(jnp.mean(centred**2) + self.eps) * self.scale + self.bias


class GLU(eqx.Module):
    """Gated linear unit `(W x + b) * sigmoid(W' x + b')`, with W and W' stacked in one matrix."""

    linear: Linear

    def __init__(self, size: int, *, key: PRNGKeyArray):
        self.linear = Linear(size, 2 * size, key=key)

    def __call__(self, x: Float[Array, "H"]) -> Float[Array, "H"]:
        value, gate = jnp.split(self.linear(x), 2)
        return value * jax.nn.sigmoid(gate)


class Block(eqx.Module):
    """One recurrent layer: `skip + dropout(GLU(dropout(gelu(cell(norm(x))))))`.

    `norm` may also stand after the sum ("post") or be left out ("none"). A dropout mask is sampled
    once for a sequence and used at every step.
    """

    norm: LayerNorm | None
    cell: AbstractCell
    glu: GLU | None
    dropout: float = eqx.field(static=True)
    norm_place: NormPlace = eqx.field(static=True)

    def before(self, x: Float[Array, "H"]) -> Float[Array, "H"]:
        """Return the input of the cell."""
        return self.norm(x) if self.norm is not None and self.norm_place == "pre" else x

    def after(
        self, x: Float[Array, "H"], y: Float[Array, "H"], keep: Float[Array, "2 H"] | None
    ) -> Float[Array, "H"]:
        """Return the output of the block from its input x and the cell's output y."""
        y = jax.nn.gelu(y)
        y = y if keep is None else y * keep[0]
        y = y if self.glu is None else self.glu(y)
        y = y if keep is None else y * keep[1]
        return self.norm(x + y) if self.norm is not None and self.norm_place == "post" else x + y


class Decoder(eqx.Module):
    """Linear map to the outputs, preceded by a hidden ReLU layer if `hidden_size` is given."""

    hidden: Linear | None
    linear: Linear

    def __init__(self, size: int, output_size: int, hidden_size: int | None, *, key: PRNGKeyArray):
        first, second = jax.random.split(key)
        self.hidden = None if hidden_size is None else Linear(size, hidden_size, key=first)
        self.linear = Linear(size if hidden_size is None else hidden_size, output_size, key=second)

    def __call__(self, x: Float[Array, "H"]) -> Float[Array, "O"]:
        return self.linear(x if self.hidden is None else jax.nn.relu(self.hidden(x)))


class AbstractNetwork(eqx.Module):
    """Recurrent layers and a decoder that reads their features; a learner trains both."""

    decoder: eqx.AbstractVar[Callable[[Array], Array]]
    input_size: eqx.AbstractVar[int]
    output_size: eqx.AbstractVar[int]
    depth: eqx.AbstractVar[int]
    cumulative_mean: eqx.AbstractVar[bool]

    @property
    @abc.abstractmethod
    def feature_size(self) -> int:
        """Number of features that the decoder reads."""

    @property
    def dtype(self) -> jnp.dtype:
        """Data type of the parameters, in which states and outputs are computed."""
        return jax.tree.leaves(self)[0].dtype

    @property
    @abc.abstractmethod
    def cells(self) -> Any:
        """All cells. Every leaf has an axis in front, as in a carry."""

    @abc.abstractmethod
    def each_cell(self, function: Callable[..., Any], *trees: Any) -> Any:
        """Apply a function to each cell, together with the cell's entries of other trees.

        Args:
            function: function of a cell and of its entry of each tree.
            trees: trees with an axis in front, like `cells`, such as the states of a carry.
        """

    @property
    def in_front_of_cells(self) -> tuple[str, ...]:
        """Paths of the parameters that affect the outputs only through the states of cells."""
        return ()

    def dropout_masks(self, key: PRNGKeyArray) -> Float[Array, "D 2 H"] | None:
        """Sample the dropout masks of all layers for a sequence; None without dropout."""
        return None


class Network(AbstractNetwork):
    """A stack of recurrent blocks between a linear encoder and a decoder (paper, Figure 1).

    Args:
        input_size: number of inputs at each step.
        output_size: number of outputs at each step. For k outputs of c classes each, this is `k *
            c`, ordered output by output.
        model_size: number of features H between the blocks.
        depth: number of blocks.
        cell: function `make(size, *, key)`, such as `LRU.factory(state_size=64)`.
        glu: whether the blocks have a gated linear unit.
        norm: place where the blocks normalise: "pre", "post" or "none".
        norm_eps: constant added to the variance of the features before its root is taken.
        dropout: probability that a feature is dropped. The same features are dropped at all steps
            of a sequence.
        readout_size: number of hidden units of the decoder. Default: none, a linear decoder.
        cumulative_mean: whether the decoder reads the mean of the features so far, only for whole
            sequences. The mean is differentiated as if it were the present features (straight
            through).
        key: PRNG key of the initialisation.

    Raises:
        TypeError: a size is not a whole number, `cell` is not a function that makes a cell, or
            `key` is not a PRNG key.
        ValueError: a size is below one, dropout is outside `[0, 1)`, the norm is unknown, norm_eps
            is not positive, or the cell's output does not have `model_size` features.

    The blocks are stacked (every leaf has the axis D in front) and scanned, so the compile time
    does not grow with the depth. `network.block(i)` returns one block.

    >>> import foretrace as ft, jax
    >>> network = ft.Network(
    ...     8,
    ...     14,
    ...     model_size=128,
    ...     depth=4,
    ...     cell=ft.LRU.factory(state_size=64),
    ...     key=jax.random.key(0),
    ... )
    >>> ft.parameter_count(network)
    268430
    """

    encoder: Linear
    blocks: Block
    decoder: Decoder
    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    model_size: int = eqx.field(static=True)
    depth: int = eqx.field(static=True)
    cumulative_mean: bool = eqx.field(static=True)

    def __init__(
        self,
        input_size: int,
        output_size: int,
        *,
        model_size: int,
        depth: int,
        cell: Callable[..., AbstractCell],
        glu: bool = True,
        norm: NormPlace = "pre",
        norm_eps: float = 1e-5,
        dropout: float = 0.0,
        readout_size: int | None = None,
        cumulative_mean: bool = False,
        key: PRNGKeyArray,
    ):
        check_key("Network", key)
        check_sizes("Network", input_size=input_size, output_size=output_size, depth=depth)
        hidden = {} if readout_size is None else {"readout_size": readout_size}
        check_sizes("Network", model_size=model_size, **hidden)
        if not 0 <= dropout < 1:
            raise ValueError(f"Network(dropout={dropout}) must lie in [0, 1)")
        if norm not in ("pre", "post", "none"):
            raise ValueError(f"Network(norm={norm!r}) must be 'pre', 'post' or 'none'")
        check_numbers("Network", norm_eps=norm_eps)
        self.input_size, self.output_size = input_size, output_size
        self.model_size, self.depth, self.cumulative_mean = model_size, depth, cumulative_mean
        first = shapes_of(cell, model_size, key)
        if first.output_size != model_size:
            raise ValueError(
                f"{type(first).__name__} puts out {first.output_size} features where the network "
                f"carries model_size={model_size}; give the cell a readout of that size or change "
                "model_size"
            )

        def block(key: PRNGKeyArray) -> Block:
            cell_key, glu_key = jax.random.split(key)
            return Block(
                norm=None if norm == "none" else LayerNorm(model_size, norm_eps),
                cell=cell(model_size, key=cell_key),
                glu=GLU(model_size, key=glu_key) if glu else None,
                dropout=dropout,
                norm_place=norm,
            )

        def draw(key: PRNGKeyArray) -> tuple[Linear, Block, Decoder]:
            encoder_key, decoder_key, block_key = jax.random.split(key, 3)
            # Biases away from zero: at an input of exactly zero, LayerNorm has the derivative
            # 1/sqrt(eps), and some tasks have steps without input.
            encoder = Linear(input_size, model_size, key=encoder_key, bias_scale=0.1)
            blocks = eqx.filter_vmap(block)(jax.random.split(block_key, depth))
            return encoder, blocks, Decoder(model_size, output_size, readout_size, key=decoder_key)

        self.encoder, self.blocks, self.decoder = run_once(draw, key)

    @property
    def feature_size(self) -> int:
        """Number of features that the decoder reads, the model size."""
        return self.model_size

    @property
    def cells(self) -> AbstractCell:
        """The cells of all blocks, stacked."""
        return self.blocks.cell

    def each_cell(self, function: Callable[..., Any], *trees: Any) -> Any:
        """Apply a function to the cell of each block, with its entries of the other trees."""
        return jax.vmap(function)(self.cells, *trees)

    @property
    def in_front_of_cells(self) -> tuple[str, ...]:
        """The encoder, and the norms if they are applied before the cells."""
        return (".encoder", ".blocks.norm") if self.blocks.norm_place == "pre" else (".encoder",)

    def dropout_masks(self, key: PRNGKeyArray) -> Float[Array, "D 2 H"] | None:
        """Sample two masks for each block of a sequence, scaled to keep the mean of features."""
        if not (rate := self.blocks.dropout):
            return None
        keep = partial(jax.random.bernoulli, p=1 - rate, shape=(2, self.model_size))
        kept = jax.vmap(keep)(jax.random.split(key, self.depth))
        return jnp.where(kept, 1 / (1 - rate), 0.0)

    def block(self, i: int) -> Block:
        """Return block i, counted from the input; negative i counts from the output."""
        if not -self.depth <= i < self.depth:
            raise IndexError(f"block({i}): the network has depth {self.depth}")
        return jax.tree.map(lambda leaf: leaf[i], self.blocks)


def run_once(function: Callable[[PRNGKeyArray], tuple], key: PRNGKeyArray) -> tuple:
    """Run a function as one unoptimised program, which compiles at least five times as fast."""
    try:
        return jax.jit(function, compiler_options=unoptimised())(key)
    except ValueError:
        # Inside another program, JAX refuses compiler options. Any other error is raised again
        # here.
        return function(key)


def check_network(owner: str, network: object) -> None:
    """Raise a TypeError for an object that is no network, or for parameters in half precision.

    Args:
        owner: name of the caller, for the error message.
        network: the network.
    """
    if not isinstance(network, AbstractNetwork):
        raise TypeError(
            f"{owner}(network={type(network).__name__}) must be a foretrace.Network or a "
            "foretrace.ModuleNetwork"
        )
    for path, leaf in jax.tree.leaves_with_path(network):
        if jnp.issubdtype(leaf.dtype, jnp.floating) and jnp.finfo(leaf.dtype).bits < 32:
            raise TypeError(
                f"{owner}: network.{jax.tree_util.keystr(path, simple=True, separator='.')} is "
                f"{leaf.dtype}, expected float32 or float64, because states and sensitivities add "
                "up over time; convert it with jax.tree.map(lambda p: p.astype(jnp.float32), "
                "network)"
            )


def parameter_count(network: eqx.Module) -> int:
    """Return the number of real parameters of a network or any part of it."""
    return sum(leaf.size for leaf in jax.tree.leaves(eqx.filter(network, eqx.is_inexact_array)))
