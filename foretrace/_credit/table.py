"""Requirements that a rule's credit places on the network, the carry and the learner."""

from typing import Any

from foretrace._credit.blocks import in_place
from foretrace._credit.groups import DeepSensitivity, check_samples
from foretrace._network import AbstractNetwork, Network
from foretrace._rule import LearningRule
from foretrace._types import Array, PyTree, Stack


def check_rule(network: AbstractNetwork, rule: LearningRule, *, whole_sequences: bool) -> None:
    """Raise a ValueError if a rule does not fit a network or the way it is run.

    Args:
        network: the network.
        rule: learning rule.
        whole_sequences: whether each call is a sequence of its own, so that nothing is carried.
    """
    # Modules are sampled only for the carry from before the chunk.
    if whole_sequences and rule.samples:
        raise ValueError(
            f"under {rule} on whole sequences nothing is carried, so no modules can be sampled; "
            "leave them out, or run it in chunks"
        )
    if rule.credit is not None:
        check_samples(with_blocks(network, rule), rule)


def advances_in_place(network: AbstractNetwork, rule: LearningRule, steps: int) -> bool:
    """Return whether sensitivities are overwritten in place after they are read."""
    return rule.credit is not None and in_place(with_blocks(network, rule), rule, steps)


def with_blocks(network: AbstractNetwork, rule: LearningRule) -> Network:
    """Return the network if its layers can receive credit from higher layers.

    Raises:
        ValueError: the network has no blocks.
    """
    if not isinstance(network, Network):
        raise ValueError(
            f"{rule}: credit between layers is for ft.Network, got a {type(network).__name__}; use "
            f"the rule without it, {rule.name}"
        )
    return network


def own_sensitivity(e: PyTree[Array]) -> PyTree[Array]:
    """Return the sensitivities of each layer to its own coefficients, stacked."""
    return e.own if isinstance(e, DeepSensitivity) else e


def moved_from_below(moved: Stack, e: PyTree[Array], change: Any) -> Stack:
    """Return changes of states, plus the changes that lower layers cause if they are known.

    Args:
        moved: changes of the states of one stream that each layer's own coefficients cause.
        e: sensitivities of the stream.
        change: change of the network's parameters, a tree like the network.
    """
    return e.moved_from_below(moved, change) if isinstance(e, DeepSensitivity) else moved


def reaches_encoder(rule: LearningRule, depth: int, steps: int) -> bool:
    """Return whether encoder and first norms receive the errors of later steps.

    Without these errors, their gradient contains only the effect of the present input on the
    present output. The encoder then learns to suppress inputs that are needed later.

    Args:
        rule: learning rule.
        depth: number of recurrent layers of the network.
        steps: number of steps that are learned in one call.
    """
    if rule.credit is not None and rule.credit.depth >= depth:
        return True
    return rule.inputs and steps > 1
