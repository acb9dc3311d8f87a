"""Learning rules: which paths are differentiated through time, and the credit depth.

A rule is data. It states which paths are differentiated, and nothing about how the derivative is
computed. `foretrace._recurrence.unroll` applies `stop_gradient` to the arguments that a rule does
not differentiate, and `foretrace._credit` computes the credit between layers.
"""

import dataclasses
import re
from typing import Any, Self


@dataclasses.dataclass(frozen=True)
class Depth:
    """Multi-layer RTRL truncated at `depth` layers: errors also pass the memory of higher layers.

    Source: Meert and Ludik, A multilayer real-time recurrent learning algorithm, 1997; Irie et al.,
        Exploring the promise and limits of real-time recurrent learning, 2024.

    Args:
        depth: number of higher recurrent layers through whose memory errors propagate, at any
            distance in time. The gradient is exact if this is at least the number of recurrent
            layers of the network.
        groups: number of parameter groups that receive this credit, counted from the input. Group 1
            is the encoder and the norm in front of the first recurrent layer. All other groups
            learn as under a rule without credit depth. 0 (default) means all groups.
        modules: number of modules of each recurrent layer that carry sensitivities to the layers
            below. They are sampled once per sequence and weighted so that the gradient is unbiased.
            0 (default) means all modules.
        by_memory: whether modules are sampled in proportion to their time constants, instead of
            uniformly. In trained networks with long memories, this gives less noise at the same
            cost.

    Raises:
        ValueError: by_memory is given without modules.
    """

    depth: int
    groups: int = 0
    modules: int = 0
    by_memory: bool = False

    def __post_init__(self) -> None:
        if self.by_memory and not self.modules:
            raise ValueError(
                "by_memory=True says how modules are sampled, and modules=0 takes all; set modules"
            )

    def __str__(self) -> str:
        values = ((f, getattr(self, f.name)) for f in dataclasses.fields(self))
        return ", ".join(f"{f.name}={value}" for f, value in values if value != f.default)


_WORDS = {
    str: "a text",
    bool: "True or False",
    Depth | None: "the credit of a rule, such as ft.ONLINE.with_depth(1).credit, or None",
}
"""Words for the types of a rule's fields."""


@dataclasses.dataclass(frozen=True)
class LearningRule:
    """Which arguments of `h_t = step(theta, own, others, x_t)` are differentiated through time.

    Under every rule, the error of the present step reaches the layers below at the present step.

    Args:
        name: name in tables, records and error messages.
        recurrent: whether the coefficients that act on the past (λ, A, …) receive a derivative.
        own: whether the derivative passes through each module's own previous state.
        others: whether the derivative passes through the previous states of the other modules (full
            sensitivity of a dense layer).
        inputs: whether the derivative passes through the inputs of earlier steps of the chunk, and
            so through the memory of the layers above.
        carried: whether sensitivities represent the steps before the chunk. If False, the state
            before the chunk is a constant.
        trains_cells: whether the parameters of the recurrent layers are trained.
        credit: credit that also passes through the memory of higher layers, a `Depth`. Default:
            none.

    Raises:
        ValueError: a value has the wrong type, or the values do not fit together.
    """

    name: str
    recurrent: bool = False
    own: bool = False
    others: bool = False
    inputs: bool = False
    carried: bool = False
    trains_cells: bool = True
    credit: Depth | None = None

    def __post_init__(self) -> None:
        for name, kind in LearningRule.__annotations__.items():
            value = getattr(self, name)
            if not isinstance(value, kind):
                raise ValueError(f"LearningRule({name}={value!r}) must be {_WORDS[kind]}")
        if self.carried and not self.own:
            raise ValueError(
                f"LearningRule(name={self.name!r}): carried=True needs own=True, because a "
                "sensitivity reaches the present only through a module's own past; set own=True or "
                "carried=False"
            )
        if self.credit is not None and not self.carried:
            raise ValueError(
                f"{self}: credit in depth extends the sensitivities that a rule carries, and "
                f"{self.name} carries none; use it with ONLINE, RTRL or HYBRID"
            )

    def with_depth(self, depth: int) -> Self:
        """Return the rule with multi-layer RTRL truncated at `depth` layers; 0 removes it.

        Raises:
            ValueError: the depth is negative, or the rule has no sensitivities.

        >>> print(RTRL.with_depth(2))
        RTRL(depth=2)
        """
        if isinstance(depth, bool) or not isinstance(depth, int) or depth < 0:
            raise ValueError(f"depth={depth!r} must be an integer of at least 0")
        credit = dataclasses.replace(self.credit or Depth(depth), depth=depth)
        return dataclasses.replace(self, credit=credit if depth else None)

    @property
    def samples(self) -> bool:
        """Whether modules are sampled, so that a stream needs a PRNG key."""
        return self.credit is not None and self.credit.modules > 0

    def __str__(self) -> str:
        return self.name if self.credit is None else f"{self.name}({self.credit})"


RESERVOIR = LearningRule("RESERVOIR", trains_cells=False)
"""No recurrent layer is trained; all other parts learn by spatial backpropagation."""


SPATIAL = LearningRule("SPATIAL")
"""Instantaneous backpropagation: no derivative through time at all (paper: "spatial")."""


TRUNCATED = LearningRule("TRUNCATED", recurrent=True)
"""One step of the past: the state before it is constant (paper: "1-step truncated")."""


ONLINE = LearningRule("ONLINE", recurrent=True, own=True, carried=True)
"""The paper's rule: SnAp-1 with spatially backpropagated errors.

On independent modules, this is the exact gradient of the layer (Eq. 5-7)."""


SNAP1 = ONLINE
"""The online rule on dense layers, where its gradient is approximate. Its other name is SnAp-1."""


RTRL = LearningRule("RTRL", recurrent=True, own=True, others=True, carried=True)
"""Real-time recurrent learning in each layer, exact also for dense layers; O(N |theta|) memory."""


HYBRID = LearningRule("HYBRID", recurrent=True, own=True, inputs=True, carried=True)
"""The online rule across chunks, and backpropagation through time inside a chunk."""


BPTT = LearningRule("BPTT", recurrent=True, own=True, others=True, inputs=True)
"""Backpropagation through time over the chunk, exact if the chunk is the whole sequence."""


RULES = {
    rule.name: rule for rule in (RESERVOIR, SPATIAL, TRUNCATED, ONLINE, RTRL, HYBRID, BPTT)
} | {"SNAP1": SNAP1}
"""Every rule by name, for command lines and records."""


def rule(text: str) -> LearningRule:
    """Return the rule that a text names, with options in parentheses; `str(rule)` is such a text.

    The options are the fields of `Depth`: `depth` gives the rule credit through higher layers, and
    the others reduce the memory that this credit needs.

    Args:
        text: name of a rule in any case, with or without options in parentheses, as in the
            examples.

    Raises:
        ValueError: a name or option is unknown, or the options do not fit the rule. The message
            lists the known names.

    >>> rule("online(depth=2)") == ONLINE.with_depth(2)
    True
    >>> print(rule("online(depth=1, groups=1, modules=16, by_memory=true)"))
    ONLINE(depth=1, groups=1, modules=16, by_memory=True)
    """
    form = re.fullmatch(r"\s*(\w+)\s*(?:\((.*)\))?\s*", str(text))
    if form is None or form[1].upper() not in RULES:
        raise ValueError(f"rule={text!r} is unknown; choose one of {', '.join(sorted(RULES))}")
    found = RULES[form[1].upper()]
    forms = {f.name: "true|false" if f.type is bool else r"\d+" for f in dataclasses.fields(Depth)}
    given: dict[str, Any] = {}
    for option in () if form[2] is None else form[2].split(","):
        name, _, value = (part.strip() for part in option.lower().partition("="))
        if name not in forms or name in given or not re.fullmatch(forms[name], value):
            raise ValueError(
                f"rule={text!r}: {option.strip()!r} is not an option of {found.name}; write each "
                f"once, as depth=2, among {', '.join(forms)}"
            )
        given[name] = int(value) if value.isdigit() else value == "true"
    depth = given.pop("depth", 0)
    if given and not depth:
        name, number = next(iter(given.items()))
        raise ValueError(
            f"rule={text!r}: {name}={number} is a part of credit in depth, which needs a depth of "
            "at least 1, as depth=1"
        )
    try:
        return dataclasses.replace(found, credit=Depth(depth, **given)) if depth else found
    except ValueError as error:
        raise ValueError(f"rule={text!r}: {error}") from error


def as_rule(given: LearningRule | str) -> LearningRule:
    """Return a rule: the argument itself, or the rule that a text names.

    Raises:
        ValueError: as in `rule`.
    """
    return given if isinstance(given, LearningRule) else rule(given)


def rule_text(text: str) -> str:
    """Return the text of a rule in the form that configurations and records store.

    Raises:
        ValueError: as in `rule`.

    >>> rule_text("SNAP1"), rule_text("Online( groups=1,depth=2 )")
    ('online', 'online(depth=2, groups=1)')
    """
    return str(rule(text)).lower()
