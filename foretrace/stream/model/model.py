"""The model of a stream: its shape, defaults, network and mixture."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from foretrace._engine.carry import init_carry, real_numbers
from foretrace._learner.learner import Learner
from foretrace._learner.optimizer import adamw
from foretrace._network import Network
from foretrace._rule import HYBRID
from foretrace.losses import softmax_cross_entropy, squared_error
from foretrace.stream.experts.by_name import Own
from foretrace.stream.experts.shape import Shape
from foretrace.stream.model.mixture import Mixture
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.read.encode import Encoder
from foretrace.stream.read.target import ROOM, ClassTarget, Target

MAX_EXACT_ELEMENTS, MAX_EXACT_BYTES = 2**20, 2**28
"""Limits for the default credit through all layers: elements of a stream, bytes of all streams."""


def shape_of(encoder: Encoder, target: Target, *, previous: bool = True, **options: Any) -> Shape:
    """Return the sizes of a stream as a `Shape`.

    Args:
        encoder: encoder of the rows.
        target: predicted quantity.
        previous: whether the last known label is an input.
        **options: further fields of `Shape`.
    """
    if isinstance(target, ClassTarget) and target.grows and target.output_size < ROOM:
        options = {"begun_with": ROOM} | options  # features that suit later classes, too
    return Shape(
        inputs=encoder.width,
        lagged=encoder.number_places,
        outputs=target.output_size,
        classes=isinstance(target, ClassTarget),
        previous=previous,
        used=encoder.used,
        categories=encoder.category_places,
        words=encoder.num_words,
        **options,
    )


def resolve(config: ModelConfig, shape: Shape) -> tuple[ModelConfig, Shape]:
    """Return complete options of a model, and the sizes that they need.

    If the memory suffices, credit passes through all layers, which gives the exact gradient.
    """
    shape = dataclasses.replace(shape, raw="raw" in config.other_experts)
    if not config.has_network:
        return config, shape
    rule = config.rule
    if rule is None:
        rule = str(HYBRID.with_depth(config.depth) if _is_affordable(config, shape) else HYBRID)
    return (
        dataclasses.replace(config, rule=rule),
        dataclasses.replace(shape, has_network=True),
    )


def _is_affordable(config: ModelConfig, shape: Shape) -> bool:
    """Return whether sensitivities through all layers are within the limits."""
    exact = HYBRID.with_depth(config.depth)
    carry = jax.eval_shape(
        lambda: init_carry(_network(config, dataclasses.replace(shape, has_network=True)), exact)
    )
    # Each member, the spare slot, and each waiting row have a carry.
    num_carries = (1 if shape.members is None else shape.members + 1) + shape.places
    elements = real_numbers(carry)
    itemsize = jnp.dtype(jnp.result_type(float)).itemsize
    return elements <= MAX_EXACT_ELEMENTS and elements * itemsize * num_carries <= MAX_EXACT_BYTES


def _network(config: ModelConfig, shape: Shape) -> Network:
    return Network(
        shape.network_inputs,
        shape.outputs,
        model_size=config.model_size,
        depth=config.depth,
        cell=config.cell_factory(),
        key=jax.random.key(0),
    )


def build_learner(config: ModelConfig, shape: Shape) -> Learner:
    """Return a learner with a new network.

    Args:
        config: options of the model, as `resolve` returns them.
        shape: sizes of the stream, as `resolve` returns them.
    """
    assert config.rule is not None
    return Learner(
        _network(config, shape),
        rule=config.rule,
        optimizer=adamw(config.learning_rate, clip=1.0),
        loss=softmax_cross_entropy if shape.classes else squared_error,
    )


def build_mixture(config: ModelConfig, shape: Shape, own: Own = ()) -> Mixture:
    """Return the mixture of a model. Equal models share a mixture with its compiled programs.

    Args:
        config: options of the model, as `resolve` returns them.
        shape: sizes of the stream, as `resolve` returns them.
        own: the user's experts.
    """
    return _mixture(config, shape, own, jnp.result_type(float))


@functools.lru_cache(maxsize=16)
def _mixture(config: ModelConfig, shape: Shape, own: Own, dtype: Any) -> Mixture:
    """Return a mixture. The last mixtures are cached, separately for float32 and float64."""
    network = build_learner(config, shape) if config.has_network else None
    return Mixture(shape, config.other_experts, network, own)
