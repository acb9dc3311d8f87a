"""What learns on a stream as plain data, what is decided where nobody did, and the learner that is made of it."""

import dataclasses

import jax
import jax.numpy as jnp

from foretrace._cells.lru import LRU
from foretrace._credit.table import leaves_nothing_out
from foretrace._engine.carry import init_carry, real_numbers
from foretrace._learner.learner import Learner, SensitivityDtype
from foretrace._learner.optimizer import adamw
from foretrace._learner.wrappers import holding, in_front_of_recurrences
from foretrace._network import Network
from foretrace._rule import as_rule
from foretrace.losses import softmax_cross_entropy, squared_error

EXACT_NUMBERS, EXACT_BYTES = 2**20, 2**28
"""Most numbers that a stream, and most memory that all streams may carry for credit in depth that nobody asked for."""


@dataclasses.dataclass(frozen=True)
class Model:
    """What is learned by: sizes, rule and optimiser of a network for one stream, as plain data.

    Args:
        input_size: inputs of a row.
        output_size: logits, or numbers that are predicted.
        classes: whether the outputs are logits of one class.
        depth: recurrent layers.
        model_size: features between the layers.
        state_size: modules of a layer.
        rule: what is differentiated through time.
        credit_depth: through the memory of how many recurrences above a parameter its errors travel as well.
        learning_rate: of AdamW.
        clip: largest norm of a gradient; None for no clipping.
        sensitivity_dtype: "bfloat16" keeps sensitivities in half the memory.
        train_encoder: train the encoder and the norms in front of the recurrences as well.
        r_min: inner radius of the eigenvalues to begin with.
        r_max: outer radius.
        recurrent_factor: rate of the eigenvalues and input gains relative to the rest.
        chunk: rows that are learned together.
        delay: rows after which a label comes.
        seed: of the initial network.
        members: most streams that share the network; None for one stream.
        together: rows of distinct members that are learned in one step.
    """

    input_size: int
    output_size: int
    classes: bool
    depth: int = 2
    model_size: int = 32
    state_size: int = 32
    rule: str = "online"
    credit_depth: int = 0
    learning_rate: float = 1e-3
    clip: float | None = 1.0
    sensitivity_dtype: SensitivityDtype | None = None
    train_encoder: bool = True
    r_min: float = 0.0
    r_max: float = 1.0
    recurrent_factor: float = 0.5
    chunk: int = 1
    delay: int = 0
    seed: int = 0
    members: int | None = None
    together: int = 1


def decided(model: Model, credit_depth: int | None, train_encoder: bool | None) -> Model:
    """Return a model with these two, which are chosen if None.

    Row by row, credit in depth leaves nothing out if memory allows; what stands in front of the recurrences is trained
    if its errors are known through time: by credit through all layers, or within chunks by a rule that is open there.
    """
    rule = as_rule(model.rule)
    if credit_depth is None:
        exact = model.chunk == 1 and rule.carried and _affordable(dataclasses.replace(model, credit_depth=model.depth))
        credit_depth = model.depth if exact else 0
    if train_encoder is None:
        train_encoder = credit_depth >= model.depth or (model.chunk > 1 and rule.inputs) or leaves_nothing_out(rule)
    return dataclasses.replace(model, credit_depth=credit_depth, train_encoder=train_encoder)


def _affordable(model: Model) -> bool:
    carry = jax.eval_shape(lambda: init_carry(_network(model), as_rule(model.rule).with_depth(model.credit_depth)))
    # What is kept: a carry for each member and one more, and of steps that wait one more than there are.
    kept = (1 if model.members is None else model.members + 1) * (2 + model.delay if model.delay else 1)
    numbers = real_numbers(carry)
    size = jnp.dtype(model.sensitivity_dtype or jnp.result_type(float)).itemsize
    return numbers <= EXACT_NUMBERS and numbers * size * kept <= EXACT_BYTES


def _network(model: Model) -> Network:
    return Network(
        model.input_size,
        model.output_size,
        model_size=model.model_size,
        depth=model.depth,
        cell=LRU.factory(state_size=model.state_size, r_min=model.r_min, r_max=model.r_max),
        key=jax.random.key(model.seed),
    )


def build_learner(model: Model) -> Learner:
    """Return what learns: a network and its optimiser, for as many streams as learn in one step."""
    optimizer = adamw(model.learning_rate, clip=model.clip, recurrent_factor=model.recurrent_factor)
    if not model.train_encoder:
        optimizer = holding(optimizer, in_front_of_recurrences)
    return Learner(
        _network(model),
        rule=as_rule(model.rule).with_depth(model.credit_depth),
        optimizer=optimizer,
        loss=softmax_cross_entropy if model.classes else squared_error,
        sensitivity_dtype=model.sensitivity_dtype,
        # One stream is faster without an axis of streams.
        batch_size=None if model.together == 1 else model.together,
    )
