"""Learning rules: which arguments of the one-step recurrence are open to the derivative through time.

A rule is data. It never says how a derivative is computed, only what is differentiated; `foretrace._recurrence.unroll`
applies it as `stop_gradient` on the closed arguments.
"""

import dataclasses
from typing import Literal, Self


@dataclasses.dataclass(frozen=True)
class LearningRule:
    """Which arguments of `h_t = step(theta, own, others, x_t)` are differentiated through time.

    The error of the present step always reaches the layers below at the present step, whatever the rule.
    `with_depth` lets it through the memory of the layers above, too.

    Args:
        name: what tables, records and error messages call the rule.
        recurrent: the coefficients that act on the past (λ, A, …) receive a derivative.
        own: through each module's own previous state (forward form: the sensitivity of a module to itself).
        others: through the previous states of the other modules (the full sensitivity of a dense layer).
        inputs: through the inputs of past steps, hence through the memory of the layers above; inside a chunk.
        carried: what came before the chunk enters by the sensitivity; without it the chunk starts from a constant.
        trains_cells: False closes every parameter of the recurrent layers.
        depth: through the memory of how many recurrences above a parameter its errors travel, besides its own, and
            at any distance in time; 0 is the paper's rule, the number of recurrences or more leaves nothing out.
        columns: with depth, of the sensitivities to the layers below only those to so many columns of each matrix are
            carried, drawn anew for every sequence and scaled, so that the gradient is right on average; 0 carries all.
        modules: with depth, so many modules of each recurrence carry sensitivities to the layers below, drawn and
            scaled likewise; 0 for all.
        groups: with depth, only the parameters of so many groups, counted from the input, have it; 1 is the encoder and
            the norm before the first recurrence; the others learn as without depth; 0 for all.
        sketches: number of random estimates that are carried in place of sensitivities.
    """

    name: str
    recurrent: bool = False
    own: bool = False
    others: bool = False
    inputs: bool = False
    carried: bool = False
    trains_cells: bool = True
    depth: int = 0
    columns: int = 0
    modules: int = 0
    groups: int = 0
    sketches: int = 0

    def __post_init__(self) -> None:
        if self.carried and not self.own:
            raise ValueError(
                f"LearningRule(name={self.name!r}): carried=True needs own=True, because a sensitivity reaches "
                "the present only through a module's own past; set own=True or carried=False"
            )
        if isinstance(self.depth, bool) or not isinstance(self.depth, int) or self.depth < 0:
            raise ValueError(f"LearningRule(depth={self.depth!r}) must be an integer of at least 0")
        for name, value in {"groups": self.groups, "columns": self.columns, "modules": self.modules}.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise ValueError(f"LearningRule({name}={value!r}) must be an integer of at least 0")
            if value and not self.depth:
                raise ValueError(
                    f"{self.name}: {name}={value} is a part of credit in depth, which needs a depth of at least 1 "
                    "(with_depth), got 0"
                )
        if isinstance(self.sketches, bool) or not isinstance(self.sketches, int) or self.sketches < 0:
            raise ValueError(f"LearningRule(sketches={self.sketches!r}) must be an integer of at least 0")
        every = self.recurrent and self.own and self.others and self.inputs and self.trains_cells
        if self.sketches and (self.carried or not every):
            raise ValueError(
                f"LearningRule(name={self.name!r}, sketches={self.sketches}): a sketch stands for all that is not "
                "carried and leaves nothing closed; set recurrent, own, others and inputs, neither carried nor depth"
            )
        if self.depth and not self.carried:
            raise ValueError(
                f"{self}: credit in depth extends the sensitivities that a rule carries, and {self.name} carries "
                "none; use it with ONLINE (SNAP1), RTRL or HYBRID"
            )

    def with_sketches(self, sketches: int) -> Self:
        """Return the rule with the mean of so many independent sketches: less noise, more memory.

        Raises:
            ValueError: less than one, or another rule than UORO.

        >>> print(UORO.with_sketches(4))
        UORO(sketches=4)
        """
        if not self.sketches or isinstance(sketches, bool) or sketches < 1:
            raise ValueError(f"{self}.with_sketches({sketches}): there is at least one, and they are for UORO")
        return dataclasses.replace(self, sketches=sketches)

    def with_depth(self, depth: int) -> Self:
        """Return the rule with errors that travel through the memory of the next `depth` recurrences as well.

        Raises:
            ValueError: a negative depth, or a rule without sensitivities.

        >>> print(RTRL.with_depth(2))
        RTRL(depth=2)
        """
        return dataclasses.replace(self, depth=depth)

    def with_groups(self, groups: int) -> Self:
        """Return the rule with credit in depth for so many groups of parameters, counted from the input; 0 for all.

        One group is the encoder and the norm before the first recurrence. It is small, so that errors may reach it
        through the memory of every recurrence in a fraction of what all groups would carry.

        Raises:
            ValueError: a negative number, or a rule without depth.

        >>> print(ONLINE.with_depth(4).with_groups(1))
        SNAP1(depth=4, groups=1)
        """
        return dataclasses.replace(self, groups=groups)

    def with_columns(self, columns: int) -> Self:
        """Return the rule with sensitivities to so many columns of each matrix of the layers below; 0 for all.

        For chunks; on whole sequences nothing is carried.

        Raises:
            ValueError: a negative number, or a rule without depth.

        >>> print(ONLINE.with_depth(1).with_columns(8))
        SNAP1(depth=1, columns=8)
        """
        return dataclasses.replace(self, columns=columns)

    def with_modules(self, modules: int) -> Self:
        """Return the rule where so many modules of each recurrence carry what the layers below get; 0 for all.

        For chunks; on whole sequences nothing is carried.

        Raises:
            ValueError: a negative number, or a rule without depth.

        >>> print(ONLINE.with_depth(1).with_modules(16))
        SNAP1(depth=1, modules=16)
        """
        return dataclasses.replace(self, modules=modules)

    @property
    def drawn(self) -> bool:
        """Whether what is carried is chosen by chance."""
        return self.columns > 0 or self.modules > 0

    def __str__(self) -> str:
        if self.sketches > 1:
            return f"{self.name}(sketches={self.sketches})"
        parts = {"depth": self.depth, "groups": self.groups, "columns": self.columns, "modules": self.modules}
        said = ", ".join(f"{name}={value}" for name, value in parts.items() if value)
        return f"{self.name}({said})" if said else self.name


RESERVOIR = LearningRule("RESERVOIR", trains_cells=False)
"""No recurrent layer is trained; encoder, norms, GLUs and decoder learn by spatial backpropagation."""


SPATIAL = LearningRule("SPATIAL")
"""Instantaneous backpropagation: no derivative through time at all (paper: "spatial")."""


TRUNCATED = LearningRule("TRUNCATED", recurrent=True)
"""One step of the past: recurrent coefficients see the previous state as a constant (paper: "1-step truncated")."""


SNAP1 = LearningRule("SNAP1", recurrent=True, own=True, carried=True)
"""SnAp-1 with spatially backpropagated errors: exact inside a layer of independent modules."""


ONLINE = SNAP1
"""The paper's rule: SnAp-1 on independent modules, where it is the exact gradient of the layer (Eq. 5-7)."""


RTRL = LearningRule("RTRL", recurrent=True, own=True, others=True, carried=True)
"""Real-time recurrent learning inside each layer: exact there for dense layers too, at O(N |theta|) memory."""


HYBRID = LearningRule("HYBRID", recurrent=True, own=True, inputs=True, carried=True)
"""The paper's rule across chunks, backpropagation through time inside a chunk."""


BPTT = LearningRule("BPTT", recurrent=True, own=True, others=True, inputs=True)
"""Backpropagation through time over the chunk: truncated BPTT(C), exact when the chunk is the whole sequence."""


UORO = LearningRule("UORO", recurrent=True, own=True, others=True, inputs=True, sketches=1)
"""Unbiased online recurrent optimisation: nothing is left out on average, in the memory of one more network."""


RULES = {rule.name: rule for rule in (RESERVOIR, SPATIAL, TRUNCATED, SNAP1, RTRL, HYBRID, BPTT, UORO)} | {
    "ONLINE": ONLINE
}
"""Every rule by name, for command lines and records."""


def as_rule(rule: LearningRule | str) -> LearningRule:
    """Return the rule itself or the one of that name.

    Raises:
        ValueError: an unknown name; the message lists the known ones.
        TypeError: neither a rule nor a name.
    """
    if isinstance(rule, LearningRule):
        return rule
    if not isinstance(rule, str):
        raise TypeError(f"rule must be a LearningRule or one of {sorted(RULES)}, got {type(rule).__name__}")
    try:
        return RULES[rule.upper()]
    except KeyError:
        raise ValueError(f"rule={rule!r} is unknown; choose one of {', '.join(sorted(RULES))}") from None


RuleName = Literal["reservoir", "spatial", "truncated", "snap1", "online", "rtrl", "hybrid", "bptt", "uoro"]
