"""Options of a stream's model; the docstring is the help of the command."""

import dataclasses
import functools
import inspect
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import tyro

from foretrace._cells.abstract import AbstractCell
from foretrace._experts.by_name import EXPERTS, OF_CLASSES
from foretrace._options.cells import BY_NAME, CellName
from foretrace._options.rule import RuleText
from foretrace._rule import rule_text
from foretrace.stream._conditions import Known, Needs, conditions

Size = Literal["auto", "fast", "tiny", "small", "medium", "paper"]

if TYPE_CHECKING:
    ExpertName = str
else:
    ExpertName = Literal[EXPERTS]

AUTO: tuple[ExpertName, ...] = tuple(name for name in EXPERTS if name != "network")
"""Experts of the size `auto`."""

FAST: tuple[ExpertName, ...] = AUTO[: AUTO.index("events")]
"""Experts of the size `fast`."""

OF_SIZE: dict[str, tuple[ExpertName, ...]] = {"auto": AUTO, "fast": FAST}
"""Experts of the sizes without a network; the others are a network beside the baselines."""

SIZES: dict[Size, tuple[int, int, int]] = {
    "auto": (2, 32, 32),
    "fast": (2, 32, 32),
    "tiny": (1, 16, 16),
    "small": (2, 32, 32),
    "medium": (3, 64, 64),
    "paper": (4, 128, 64),
}
"""Depth, model size and state size of each preset."""

NETWORK = Needs(
    lambda known, _: "network" in known.experts,
    "no network takes part; name a size for one, or add network to the experts",
)
"""Condition of an option of the network."""

_STATE_SIZE = Needs(
    lambda known, _: "state_size" in known.cell_options, "the cell {cell} has no such option"
)
_SIZE = Needs(
    lambda known, size: size in OF_SIZE or "network" in known.experts,
    "the experts are named; add network to them",
)


def _predicts(part: str, classes: bool) -> Needs:
    """Return the condition of an expert that predicts classes alone, or numbers alone."""
    kinds = ("classes", "a number") if classes else ("numbers", "a class")
    return Needs(
        lambda known, experts: known.classes == classes or part not in experts,
        "it predicts {}, and the target is {}".format(*kinds),
        part=part,
    )


_OF_KIND = *(_predicts(name, True) for name in OF_CLASSES), _predicts("raw", False)


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Options of the experts, the network, its learning rule and its optimiser.

    Args:
        size: kind of model: a mixture of cheap experts (auto); a faster one without `events`,
            `memory` and `distant`, in chunks of 32 rows (fast); or a network beside
            the baselines. The presets of depth, model size and state size are `1, 16, 16` (tiny),
            `2, 32, 32` (small), `3, 64, 64` (medium) and `4, 128, 64` (paper).
        experts: experts of the mixture. Simple ones: last value, mean, season, majority (baselines,
            always used), and counts of labels that followed the last ones (contexts, classes
            alone). Least squares: on the row, on few or many earlier rows and labels (row, short,
            lags), on numbers as they are, in no unit (raw, for numbers), on random features (wide,
            waves), on soft steps of the row's numbers (steps), and on the last unusual rows
            (events). Others: nearest neighbours, gradient descent (gradient, for classes), the
            words of texts (words), trained modules (memory), single values of up to 1,000 rows ago
            (distant), the recurrent network (network). Default: all but network for auto, the ones
            before events for fast, the network for other sizes.
        cell: recurrent layer of the network, by the names of `foretrace train`. The cells
            linear-rnn and gru are dense: only the rule rtrl gives them the exact gradient through
            time. Default: lru.
        depth: number of recurrent layers. Default: the size's.
        model_size: number of features between the layers. Default: the size's.
        state_size: number of recurrent units in each layer. Default: the size's; the number of
            features for cells that put out their state, such as gru.
        rule: learning rule: which gradients are computed through time, such as online, rtrl or
            "online(depth=2)". Row by row, hybrid is the online rule. Default: hybrid, with credit
            through all layers, which is the exact gradient, if the network is small (at most a
            million carried elements for a stream, and 256 MiB for all); the run prints which.
        learning_rate: learning rate of AdamW. For single rows, 3e-3 learns faster at first, but
            lost accuracy after some thousand rows.

    Raises:
        ValueError: a number is out of range, or the rule is unknown.
    """

    size: Annotated[Size, _SIZE] = "auto"
    experts: Annotated[tuple[ExpertName, ...] | None, *_OF_KIND] = None
    cell: Annotated[CellName | None, NETWORK] = None
    depth: Annotated[int | None, NETWORK] = None
    model_size: Annotated[int | None, NETWORK] = None
    state_size: Annotated[int | None, NETWORK, _STATE_SIZE] = None
    rule: Annotated[RuleText | None, NETWORK] = None
    learning_rate: Annotated[float, tyro.conf.arg(aliases=("--lr",)), NETWORK] = 1e-3

    def __post_init__(self) -> None:
        for name, value, names in (
            ("size", self.size, get_args(Size)),
            ("cell", self.cell, (None, *BY_NAME)),
        ):
            if value not in names:
                raise ValueError(
                    f"{name}={value!r} must be one of {', '.join(filter(None, names))}"
                )
        for name in ("depth", "model_size", "state_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        if self.experts is not None:
            object.__setattr__(self, "experts", tuple(self.experts))  # JSON has lists
            unknown = [name for name in self.experts if name not in EXPERTS]
            if unknown or not self.experts:
                raise ValueError(f"experts={self.experts} must name some of {', '.join(EXPERTS)}")
        if self.rule is not None:
            object.__setattr__(self, "rule", rule_text(self.rule))
        if not self.has_network:
            given = [name for name in _chosen_by_default() if getattr(self, name) is not None]
            if given:
                raise ValueError(
                    f"{given[0]}={getattr(self, given[0])} is an option of the network, which "
                    "takes no part: choose a size other than auto and fast, or name the network "
                    "among the experts"
                )

    def expert_names(self) -> tuple[str, ...]:
        """Return the names of the used experts in the order of `EXPERTS`, baselines always."""
        chosen = self.experts or OF_SIZE.get(self.size, ("network",))
        return tuple(name for name in EXPERTS if name in chosen or name == "baselines")

    @property
    def has_network(self) -> bool:
        """Whether the network takes part."""
        return "network" in self.expert_names()

    @property
    def other_experts(self) -> tuple[str, ...]:
        """Names of the experts beside the network."""
        return tuple(name for name in self.expert_names() if name != "network")

    def known(self, **of_rows: Any) -> Known:
        """Return the values that the conditions of options read.

        Args:
            **of_rows: fields of `Known` that the rows decide.
        """
        return Known(self.expert_names(), self.cell or "lru", self.cell_options().keys(), **of_rows)

    def sizes(self) -> tuple[int, int, int]:
        """Return depth, model size and state size."""
        depth, model_size, state_size = SIZES[self.size]
        return self.depth or depth, self.model_size or model_size, self.state_size or state_size

    def cell_options(self) -> dict[str, Any]:
        """Return the options of the network that the cell's constructor takes."""
        taken = inspect.signature(self.cell_class).parameters
        if "state_size" not in taken:
            return {}
        # A cell with a default of its own puts out its state, which has to be as wide as the
        # features.
        needs_one = taken["state_size"].default is inspect.Parameter.empty
        return {"state_size": self.sizes()[2] if needs_one else self.state_size}

    @property
    def cell_class(self) -> type[AbstractCell]:
        """Recurrent layer of the network."""
        return BY_NAME[self.cell or "lru"].cell


@functools.cache
def _chosen_by_default() -> tuple[str, ...]:
    """Return the options of the network whose default is chosen by its other options."""
    needs = conditions(ModelConfig)
    fields = dataclasses.fields(ModelConfig)
    return tuple(one.name for one in fields if one.default is None and NETWORK in needs[one.name])
