"""What learns on a stream, as plain data: options, shape, and the defaults that depend on both."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp

from foretrace._credit.table import reaches_encoder
from foretrace._engine.carry import init_carry, real_numbers
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._network import Network
from foretrace._rule import as_rule
from foretrace._types import Array, Float
from foretrace.losses import softmax_cross_entropy, squared_error
from foretrace.stream._model_config import ModelConfig

Made = TypeVar("Made")

MAX_EXACT_ELEMENTS, MAX_EXACT_BYTES = 2**20, 2**28
"""Limits of the default credit through all layers: elements carried for one stream, and bytes for all streams."""


@dataclasses.dataclass(frozen=True)
class StreamShape:
    """What the rows of a stream ask of a model.

    Args:
        input_size: number of inputs of a row.
        output_size: number of outputs: logits, or predicted numbers.
        classes: whether the outputs are the logits of one class.
        chunk: number of rows that are learned together.
        delay: number of rows after which a label comes.
        members: maximum number of streams that share the network; None for one stream.
        together: number of rows of distinct members that are learned in one step.
        row_size: number of inputs without those of the last known label; None for all.
        lagged: places of the inputs that are numbers, whose earlier values the experts of a mixture see.
        categories: place and number of the indicators of each column of categories, likewise.
        previous: whether the last known label is an input.
        used: number of inputs in use from the first row on, without those of the last known label; None for all.
    """

    input_size: int
    output_size: int
    classes: bool
    chunk: int = 1
    delay: int = 0
    members: int | None = None
    together: int = 1
    row_size: int | None = None
    lagged: tuple[int, ...] = ()
    categories: tuple[tuple[int, int], ...] = ()
    previous: bool = True
    used: int | None = None


@dataclasses.dataclass(frozen=True)
class Model:
    """A model of a stream as plain data; equal models share their compiled programs.

    Args:
        config: options of the network, its rule and its optimiser.
        shape: what the rows ask of it.
        credit_depth: number of recurrent layers through whose memory an error travels on its way down.
        train_encoder: whether the encoder and the norms before the recurrent layers are trained.
    """

    config: ModelConfig
    shape: StreamShape
    credit_depth: int
    train_encoder: bool

    @property
    def experts(self) -> tuple[str, ...]:
        """Names of the groups of experts, without the network."""
        return tuple(name for name in self.config.expert_names() if name != "network")

    @property
    def has_network(self) -> bool:
        """Whether the network takes part."""
        return "network" in self.config.expert_names()

    @property
    def num_calibrated(self) -> int:
        """Number of the network's outputs that are logits to be calibrated."""
        return self.shape.output_size if self.shape.classes else 0

    @property
    def num_features(self) -> int:
        """Number of features that the network puts out beside its predictions, for the experts."""
        return self.config.sizes()[1] if self.experts and self.has_network else 0

    @property
    def late_steps(self) -> int:
        """Number of steps of one stream after which the labels of a step have come."""
        return -(-self.shape.delay // self.shape.chunk)


def resolve(config: ModelConfig, shape: StreamShape) -> Model:
    """Return the model of a stream; `credit_depth` and `train_encoder` are decided where they are None.

    Row by row, credit goes through all layers if memory allows: that is the exact gradient. What stands before the
    recurrent layers is trained if its errors are known through time: by credit through all layers, or within chunks by
    a rule that sends them back through time there.
    """
    rule, depth = as_rule(config.rule), config.sizes()[0]
    credit_depth, train_encoder = config.credit_depth, config.train_encoder
    if credit_depth is None:
        exact = (
            "network" in config.expert_names() and shape.chunk == 1 and rule.carried and _is_affordable(config, shape)
        )
        credit_depth = depth if exact else 0
    if train_encoder is None:
        train_encoder = reaches_encoder(rule.with_depth(credit_depth), depth, shape.chunk)
    return Model(config, shape, credit_depth, train_encoder)


def _is_affordable(config: ModelConfig, shape: StreamShape) -> bool:
    """Return whether sensitivities through all layers stay within the limits."""
    rule = as_rule(config.rule).with_depth(config.sizes()[0])
    carry = jax.eval_shape(lambda: init_carry(_network(config, shape), rule))
    # Each member and the spare slot keep a carry; with a delay also those of a ring, one more than there are steps.
    num_carries = (1 if shape.members is None else shape.members + 1) * (2 + shape.delay if shape.delay else 1)
    elements = real_numbers(carry)
    itemsize = jnp.dtype(config.sensitivity_dtype or jnp.result_type(float)).itemsize
    return elements <= MAX_EXACT_ELEMENTS and elements * itemsize * num_carries <= MAX_EXACT_BYTES


def _network(config: ModelConfig, shape: StreamShape) -> Network:
    depth, model_size, _ = config.sizes()
    return Network(
        shape.input_size,
        shape.output_size,
        model_size=model_size,
        depth=depth,
        cell=config.cell_class.factory(**config.cell_options()),
        key=jax.random.key(config.seed),
    )


def made_once(make: Callable[[Model], Made]) -> Callable[[Model], Made]:
    """Return a function that does the same and keeps its last results, one for float32 and one for float64."""

    @functools.lru_cache(maxsize=16)
    def kept(model: Model, dtype: Any) -> Made:
        return make(model)

    return functools.wraps(make)(lambda model: kept(model, jnp.result_type(float)))


@dataclasses.dataclass(frozen=True)
class _OfFirst:
    """A loss of the first outputs; the others are features, from which nothing is learned."""

    loss: Any
    size: int

    def __call__(self, output: Float[Array, "M"], y: Array) -> Float[Array, ""]:
        return self.loss(output[..., : self.size], y)

    def check(self, output_size: int, ys: Any) -> None:
        if hasattr(self.loss, "check"):
            self.loss.check(self.size, ys)


def _with_features(config: ModelConfig, shape: StreamShape, num_features: int) -> Network:
    """Return a network whose last outputs are the features in front of its decoder: no error reaches these weights."""
    network = _network(config, dataclasses.replace(shape, output_size=shape.output_size + num_features))
    weight = network.decoder.linear.weight.at[shape.output_size :].set(jnp.eye(num_features))
    return eqx.tree_at(lambda network: network.decoder.linear.weight, network, weight)


def build_learner(model: Model) -> Learner:
    """Return a learner of a new network, for as many streams as learn in one step."""
    config, shape = model.config, model.shape
    loss = softmax_cross_entropy if shape.classes else squared_error
    return Learner(
        _with_features(config, shape, model.num_features) if model.num_features else _network(config, shape),
        rule=as_rule(config.rule).with_depth(model.credit_depth),
        optimizer=adamw(config.learning_rate, clip=config.clip, recurrent_factor=config.recurrent_factor),
        train_encoder=model.train_encoder,
        loss=_OfFirst(loss, shape.output_size) if model.num_features else loss,
        sensitivity_dtype=config.sensitivity_dtype,
        # A batch of one would cost an axis in every array: one stream is faster unbatched.
        batch_size=None if shape.together == 1 else shape.together,
    )
