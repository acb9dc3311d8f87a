"""Learning rules: the paths to differentiate through time, and at most a credit in depth.

A rule is data. It never says how a derivative is computed, only which paths are differentiated.
`foretrace._recurrence.unroll` applies the openings as `stop_gradient` on the closed arguments.
`foretrace._credit` says what a credit in depth does.
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
            distance in time. With the number of layers of the network, or more, the gradient is
            exact.
        groups: number of parameter groups that receive this credit, counted from the input (1: the
            encoder and the norm in front of the first recurrent layer); the other groups learn as
            without depth; 0 for all.
        modules: number of modules of each recurrent layer that carry sensitivities to the layers
            below, sampled once per sequence and weighted so that the gradient is unbiased; 0 for
            all.
        by_memory: whether modules are sampled in proportion to their time constants, instead of
            uniformly: less noise at the same cost, in a trained network with long memories.

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

    The error of the present step always reaches the layers below at the present step, under every
    rule.

    Args:
        name: name in tables, records and error messages.
        recurrent: the coefficients that act on the past (λ, A, …) receive a derivative.
        own: derivative through each module's own previous state (its sensitivity to itself).
        others: derivative through the previous states of the other modules (full sensitivity of a
            dense layer).
        inputs: derivative through the inputs of past steps of the chunk, hence through the memory
            of the layers above.
        carried: whether sensitivities represent the steps before the chunk; else the state before
            the chunk is a constant.
        trains_cells: False to train no parameter of the recurrent layers.
        credit: credit beyond the layer and the chunk: `Depth`, or None.

    Raises:
        ValueError: a value is of another kind, or the rule cannot work with this combination.
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
        """Return the rule with multi-layer RTRL truncated at `depth` layers; without it if 0.

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
        """Whether the carry is sampled, so that a stream needs a PRNG key."""
        return self.credit is not None and self.credit.modules > 0

    def __str__(self) -> str:
        return self.name if self.credit is None else f"{self.name}({self.credit})"


RESERVOIR = LearningRule("RESERVOIR", trains_cells=False)
"""No recurrent layer is trained; all other parts learn by spatial backpropagation."""


SPATIAL = LearningRule("SPATIAL")
"""Instantaneous backpropagation: no derivative through time at all (paper: "spatial")."""


TRUNCATED = LearningRule("TRUNCATED", recurrent=True)
"""One step of the past: coefficients see a constant previous state (paper: "1-step truncated")."""


ONLINE = LearningRule("ONLINE", recurrent=True, own=True, carried=True)
"""The paper's rule: SnAp-1 with spatially backpropagated errors, on independent modules the exact
gradient of the layer (Eq. 5-7)."""


SNAP1 = ONLINE
"""The online rule by its name in the literature on dense layers, where it is approximate."""


RTRL = LearningRule("RTRL", recurrent=True, own=True, others=True, carried=True)
"""Real-time recurrent learning in each layer, exact for dense layers, too; O(N |theta|) memory."""


HYBRID = LearningRule("HYBRID", recurrent=True, own=True, inputs=True, carried=True)
"""The paper's rule across chunks, backpropagation through time inside a chunk."""


BPTT = LearningRule("BPTT", recurrent=True, own=True, others=True, inputs=True)
"""Backpropagation through time over the chunk, exact if the chunk is the whole sequence."""


RULES = {
    rule.name: rule for rule in (RESERVOIR, SPATIAL, TRUNCATED, ONLINE, RTRL, HYBRID, BPTT)
} | {"SNAP1": SNAP1}
"""Every rule by name, for command lines and records."""


def rule(text: str) -> LearningRule:
    """Return the rule that a text names, with options of its credit; `str` gives such a text.

    Credit through `depth` layers can be limited to the first `groups` groups of parameters, counted
    from the input: group one is the encoder and the norm before the first recurrence. In chunks, a
    sample of `modules` modules of each recurrence can carry the sensitivities in place of all
    modules; `by_memory=True` samples in proportion to time constants.

    Args:
        text: name of a rule in any case, with or without options in parentheses: the fields of
            `Depth`.

    Raises:
        ValueError: a name or option is unknown, or the options do not fit the rule; the message
            lists the known ones.

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
    """Return the text of a rule as configurations and records hold it.

    Raises:
        ValueError: as in `rule`.

    >>> rule_text("SNAP1"), rule_text("Online( groups=1,depth=2 )")
    ('online', 'online(depth=2, groups=1)')
    """
    return str(rule(text)).lower()
