"""What each credit of a rule does: the only place that asks which credit a rule has."""

from typing import Any

import jax
import jax.numpy as jnp
import optax

from foretrace._credit.blocks import in_place
from foretrace._credit.depth import run_in_depth
from foretrace._credit.groups import DeepSensitivity, check_samples, init_deep_sensitivity
from foretrace._credit.modules import sample_modules
from foretrace._credit.sketches import RunLayers, Sketch, init_sketch, run_with_sketch
from foretrace._network import AbstractNetwork, Network
from foretrace._recurrence.chunk import Carry, Chunk, Modules
from foretrace._rule import Depth, LearningRule, Sketches
from foretrace._types import Array, Bool, Float, PRNGKeyArray, PyTree, Stack


def init_credit(network: Network, rule: LearningRule, h: Any, own: Any) -> Any:
    """Return the numbers that a stream carries beside its states before the first step.

    Args:
        network: the network.
        rule: learning rule.
        h: states of the recurrent layers.
        own: sensitivities of the layers to their own coefficients; None if the rule carries none.
    """
    if isinstance(rule.credit, Depth):
        return init_deep_sensitivity(network, rule, own)
    return (
        init_sketch(network, rule.credit.sketches, h) if isinstance(rule.credit, Sketches) else own
    )


def sample_credit(network: Network, rule: LearningRule, key: PRNGKeyArray) -> Modules | None:
    """Return the modules of a sequence that carry sensitivities to lower layers. None for all."""
    return sample_modules(network, rule, key) if isinstance(rule.credit, Depth) else None


def run_with_credit(
    network: Network,
    carry: Carry,
    chunk: Chunk,
    *,
    rule: LearningRule,
    starts: bool,
    return_carry: bool,
    run_layers: RunLayers,
    accepted: bool | Bool[Array, ""],
) -> tuple[Float[Array, "C H"], Carry | None]:
    """Run encoder and blocks over a chunk of one stream.

    Args:
        network: the network.
        carry: states, sensitivities and key before the chunk.
        chunk: inputs, resets and dropout masks.
        rule: rule with a credit.
        starts: nothing came before, so no sensitivity is attached.
        return_carry: False spares the carry after the chunk.
        run_layers: function that runs encoder and blocks with all states open to the derivative.
        accepted: False to leave sensitivities that are advanced in place as they were; an array to
            choose.

    Returns:
        The outputs of the last block, and the carry after the chunk (None if not returned).
    """
    when = {"starts": starts, "return_carry": return_carry}
    if isinstance(rule.credit, Sketches):
        return run_with_sketch(network, carry, chunk, run_layers=run_layers, **when)
    return run_in_depth(network, carry, chunk, rule=rule, accepted=accepted, **when)


def runs_in_parts(rule: LearningRule) -> bool:
    """Return whether a whole sequence can be differentiated part by part under a rule."""
    return not isinstance(rule.credit, Depth)


def check_rule(network: AbstractNetwork, rule: LearningRule, *, whole_sequences: bool) -> None:
    """Raise a ValueError for a rule that does not fit a network or the way it is run.

    Args:
        network: the network.
        rule: learning rule.
        whole_sequences: whether each call is a sequence of its own, so that nothing is carried.
    """
    # Sampled modules thin out the carry from before the chunk.
    if whole_sequences and isinstance(rule.credit, Depth) and rule.samples:
        raise ValueError(
            f"under {rule} on whole sequences nothing is carried, so no modules can be sampled; "
            "leave them out, or run it in chunks"
        )
    if rule.credit is not None:
        blocks = _with_blocks(network, rule)
        if isinstance(rule.credit, Depth):
            check_samples(blocks, rule)


def advances_in_place(network: AbstractNetwork, rule: LearningRule, steps: int) -> bool:
    """Return whether sensitivities are overwritten piece by piece, so that they are read first."""
    return isinstance(rule.credit, Depth) and in_place(_with_blocks(network, rule), rule, steps)


def _with_blocks(network: AbstractNetwork, rule: LearningRule) -> Network:
    """Return the network, if it is one whose layers can be given credit.

    Raises:
        ValueError: a network without blocks.
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"{rule}: credit between layers is for ft.Network, got a {type(network).__name__}; use "
            f"the rule without it, {rule.name}"
        )
    return network


def carries_sensitivities(rule: LearningRule) -> bool:
    """Return whether a stream carries more than its states under a rule."""
    return rule.carried or rule.credit is not None


def sensitivity_norm(e: PyTree[Array] | None) -> Float[Array, ""]:
    """Return the norm of the numbers that a stream carries beside its states, float32 or wider."""
    # Squares of sensitivities in bfloat16 would be summed in eight bits.
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), e)
    if isinstance(wide, Sketch):
        return wide.norm()
    return optax.tree.norm(wide) if jax.tree.leaves(wide) else jnp.zeros(())


def own_sensitivity(e: PyTree[Array]) -> PyTree[Array]:
    """Return the sensitivities of each layer to its own coefficients, stacked."""
    return e.own if isinstance(e, DeepSensitivity) else e


def moved_from_below(moved: Stack, e: PyTree[Array], change: Network) -> Stack:
    """Return changes of states, with those by the layers below added where a stream has them.

    Args:
        moved: changes of the states of one stream, by each layer's own coefficients.
        e: the numbers that the stream carries beside its states.
        change: tree like the network, added to its parameters.
    """
    return e.moved_from_below(moved, change) if isinstance(e, DeepSensitivity) else moved


def leaves_nothing_out(rule: LearningRule) -> bool:
    """Return whether a rule's gradient in chunks is unbiased for every network."""
    # E[s t^T] is the whole sensitivity, of all layers to all parameters.
    return isinstance(rule.credit, Sketches)


def reaches_encoder(rule: LearningRule, depth: int, steps: int) -> bool:
    """Return whether encoder and first norms get the errors of later steps.

    Without these errors their gradient contains the present step alone. It then counts only the
    effect of the present input on the present output, and so makes the encoder suppress inputs that
    are needed later.

    Args:
        rule: learning rule.
        depth: number of recurrent layers of the network.
        steps: number of steps that are learned in one call.
    """
    if isinstance(rule.credit, Depth) and rule.credit.depth >= depth:
        return True
    return leaves_nothing_out(rule) or (rule.inputs and steps > 1)
