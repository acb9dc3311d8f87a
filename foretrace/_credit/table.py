"""What each credit of a rule does: one table, and the only place that asks which credit a rule has."""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import optax

from foretrace._credit.blocks import in_place
from foretrace._credit.depth import run_in_depth
from foretrace._credit.groups import DeepSensitivity, check_samples, init_deep_sensitivity
from foretrace._credit.modules import sample_modules
from foretrace._network import AbstractNetwork, Network
from foretrace._recurrence.chunk import Carry, Chunk, Modules
from foretrace._rule import Depth, LearningRule, Sketches
from foretrace._types import Array, Bool, Float, PRNGKeyArray, PyTree
from foretrace.experimental.sketches import RunLayers, Sketch, init_sketch, run_with_sketch, sketch_norm


class RunChunk(Protocol):
    """Run encoder and blocks over a chunk of one stream."""

    def __call__(
        self,
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
        """Return the outputs of the last block, and the carry after the chunk (None if not returned).

        Args:
            network: the network.
            carry: states, sensitivities and key before the chunk.
            chunk: inputs, resets and dropout masks.
            rule: rule that has this credit.
            starts: nothing came before, so no sensitivity is attached.
            return_carry: False spares the carry after the chunk.
            run_layers: runs encoder and blocks with all states open to the derivative.
            accepted: False to leave the sensitivities as they were; an array to choose; for credit that is advanced in
                place.
        """


class CreditMethods(NamedTuple):
    """What a credit does.

    Args:
        init: function of network, rule, states and the layers' own sensitivities (None if the rule carries none);
            returns the sensitivities before the first step.
        sample: function of network, rule and the PRNG key of a sequence; returns the modules that carry sensitivities
            to the layers below, or None.
        run: function that runs encoder and blocks over a chunk of one stream.
        check: function of network and rule; raises a ValueError for a network that the credit is not for.
        runs_in_parts: whether a whole sequence can be differentiated part by part.
        in_place: function of network, rule and chunk length; whether sensitivities are overwritten piece by piece, so
            that they have to be read before.
    """

    init: Callable[[Network, LearningRule, Any, Any], Any]
    sample: Callable[[Network, LearningRule, PRNGKeyArray], Modules | None]
    run: RunChunk
    check: Callable[[Network, LearningRule], None]
    runs_in_parts: bool
    in_place: Callable[[Network, LearningRule, int], bool]


TABLE: dict[type, CreditMethods] = {
    Depth: CreditMethods(
        init=init_deep_sensitivity,
        sample=sample_modules,
        run=run_in_depth,
        check=check_samples,
        runs_in_parts=False,
        in_place=in_place,
    ),
    Sketches: CreditMethods(
        init=init_sketch,
        sample=lambda network, rule, key: None,
        run=run_with_sketch,
        check=lambda network, rule: None,
        runs_in_parts=True,
        in_place=lambda network, rule, steps: False,
    ),
}
"""The methods of every kind of credit. A new credit is a class in `foretrace._rule` and an entry here."""


def credit_of(rule: LearningRule) -> CreditMethods | None:
    """Return what the credit of a rule does; None if it has none."""
    return None if rule.credit is None else TABLE[type(rule.credit)]


def check_rule(network: AbstractNetwork, rule: LearningRule, *, whole_sequences: bool) -> None:
    """Raise a ValueError for a rule that does not fit a network or the way it is run.

    Args:
        network: the network.
        rule: learning rule.
        whole_sequences: whether each call is a sequence of its own, so that nothing is carried.
    """
    # What is carried over from before the chunk is all that columns and modules thin out.
    if whole_sequences and isinstance(rule.credit, Depth) and rule.samples:
        raise ValueError(
            f"under {rule} on whole sequences nothing is carried that columns or modules could be sampled from; leave "
            "them out, or run it in chunks"
        )
    if (credit := credit_of(rule)) is not None:
        credit.check(_with_credit(network, rule), rule)


def advances_in_place(network: AbstractNetwork, rule: LearningRule, steps: int) -> bool:
    """Return whether a stream's sensitivities are overwritten piece by piece, so that they have to be read before."""
    credit = credit_of(rule)
    return credit is not None and credit.in_place(_with_credit(network, rule), rule, steps)


def _with_credit(network: AbstractNetwork, rule: LearningRule) -> Network:
    """Return the network, if it is one whose layers can be given credit.

    Raises:
        ValueError: a network without blocks.
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"{rule}: credit between layers is for ft.Network, got a {type(network).__name__}; use the "
            f"rule without it, {rule.name}"
        )
    return network


def carries_sensitivities(rule: LearningRule) -> bool:
    """Return whether a stream carries more than its states under a rule."""
    return rule.carried or rule.credit is not None


def sensitivity_norm(e: PyTree[Array] | None) -> Float[Array, ""]:
    """Return the norm of what a stream carries beside its states, in float32 or wider; zero if nothing."""
    # Squares of sensitivities in bfloat16 would be summed in eight bits.
    wide = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32)), e)
    if isinstance(wide, Sketch):
        return sketch_norm(wide)
    return optax.tree.norm(wide) if jax.tree.leaves(wide) else jnp.zeros(())


def own_sensitivity(e: PyTree[Array]) -> PyTree[Array]:
    """Return the sensitivities of each layer to its own coefficients, stacked."""
    return e.own if isinstance(e, DeepSensitivity) else e


def leaves_nothing_out(rule: LearningRule) -> bool:
    """Return whether a rule's gradient in chunks is unbiased for every network."""
    # E[s t^T] is the whole sensitivity, of all layers to all parameters.
    return isinstance(rule.credit, Sketches)


def reaches_encoder(rule: LearningRule, depth: int, steps: int) -> bool:
    """Return whether the encoder and the norms in front of the recurrent layers get the errors of later steps.

    Without these errors their gradient is that of the present step. It takes what the present input does to the present
    output for all that it does, and so makes the encoder suppress what is only needed later.

    Args:
        rule: learning rule.
        depth: number of recurrent layers of the network.
        steps: number of steps that are learned in one call.
    """
    if isinstance(rule.credit, Depth) and rule.credit.depth >= depth:
        return True
    return leaves_nothing_out(rule) or (rule.inputs and steps > 1)
