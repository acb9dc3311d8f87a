"""Options of a stream's model. The docstrings are the help texts of the command."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import tyro

from foretrace._options.cells import CellName, MakeCell, cell_config
from foretrace._options.rule import RuleText
from foretrace._rule import rule_text
from foretrace.stream.experts.by_name import EXPERTS

Size = Literal["auto", "fast", "small"]

if TYPE_CHECKING:
    ExpertName = str
else:
    ExpertName = Literal[EXPERTS]

CHOSEN = ("row", "seasonal", "network")
"""Experts that take part only by name."""

AUTO: tuple[ExpertName, ...] = tuple(name for name in EXPERTS if name not in CHOSEN)
"""Experts of the size `auto`."""

FAST: tuple[ExpertName, ...] = AUTO[: AUTO.index("events")]
"""Experts of the size `fast`."""

OF_SIZE: dict[str, tuple[ExpertName, ...]] = {"auto": AUTO, "fast": FAST, "small": ("network",)}
"""Experts of each size, in addition to the baselines."""

MOST = {"categories": 2**16, "words": 2**16, "classes": 2**16}
MOST |= {"horizon": 1000}
"""Upper limits of the options that determine the use of memory."""

NETWORK = ("cell", "depth", "model_size", "state_size", "rule", "learning_rate")
"""Options of the network."""


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Options of the experts, the network, its learning rule and its optimiser.

    Args:
        size: kind of model. `auto`: a mixture of cheap experts. `fast`: the same mixture without
            the experts `events`, `memory` and `distant`; a live source is also learned in chunks of
            32 rows. `small`: only a network and the baselines.
        experts: experts of the mixture. Simple ones: last value, mean, season, majority (baselines,
            always used), and counts of the labels that followed the same last labels (contexts,
            only for classes). Least squares: on the row (row), on earlier rows and labels (lags),
            on numbers as they are, in no unit (raw, for numbers), on random features of the lags
            and of the row (wide, waves), on soft steps of its numbers (steps), and on random
            features of the last unusual rows (events). Others: smoothed season and level (seasonal,
            for numbers), nearest neighbours, gradient descent (gradient, for classes), the words of
            texts (words), trained modules (memory), single values of up to 1,000 rows ago
            (distant), the recurrent network (network). Default: all but row, seasonal and network
            for `auto`; these without events, memory and distant for `fast`; the network for
            `small`.
        cell: recurrent layer of the network, with a name as in `foretrace train`. The cells
            linear-rnn and gru are dense: only the rule rtrl gives them the exact gradient through
            time.
        depth: number of recurrent layers.
        model_size: number of features between the layers.
        state_size: number of recurrent units in each layer. Default: the number of features, or
            the number that a cell needs to put out so many.
        rule: learning rule, which determines the gradients through time, such as online, rtrl or
            "online(depth=2)". With one row at a time, hybrid equals online. Credit through all
            layers gives the exact gradient, and is affordable if a network carries at most a
            million elements for a stream and 256 MiB for all. The run prints the rule. Default:
            hybrid, with credit through all layers if affordable.
        learning_rate: learning rate of AdamW. With single rows, 3e-3 learned faster at first, but
            lost accuracy after some thousand rows.

    Raises:
        ValueError: a number is out of range, or the rule is unknown.
    """

    size: Size = "auto"
    experts: tuple[ExpertName, ...] | None = None
    cell: CellName = "lru"
    depth: int = 2
    model_size: int = 32
    state_size: int | None = None
    rule: RuleText | None = None
    learning_rate: Annotated[float, tyro.conf.arg(aliases=("--lr",))] = 1e-3

    def __post_init__(self) -> None:
        if self.size not in get_args(Size):
            raise ValueError(f"size={self.size!r} must be one of {', '.join(get_args(Size))}")
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
        self._check_network()

    def _check_network(self) -> None:
        """Check that options are given only with a network, and a cell, that has them."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        if self.size == "small" and not self.has_network:
            raise ValueError(
                f"size='small' is a network, which experts={self.experts} leave out; name network "
                "among them"
            )
        for name in NETWORK:
            if getattr(self, name) != defaults[name] and not self.has_network:
                raise ValueError(
                    f"{name}={getattr(self, name)} is an option of the network, which takes no "
                    "part: choose the size small, or name the network among the experts"
                )
        self.cell_factory()

    def expert_names(self) -> tuple[str, ...]:
        """Return the names of the used experts and the baselines, in the order of `EXPERTS`."""
        chosen = self.experts or OF_SIZE[self.size]
        return tuple(name for name in EXPERTS if name in chosen or name == "baselines")

    @property
    def has_network(self) -> bool:
        """Whether the network is among the experts."""
        return "network" in self.expert_names()

    @property
    def other_experts(self) -> tuple[str, ...]:
        """Names of the experts other than the network."""
        return tuple(name for name in self.expert_names() if name != "network")

    def cell_factory(self) -> MakeCell:
        """Return the function that makes a recurrent layer of the network."""
        plain = cell_config(self.cell, {})
        # A cell with a default of its own puts out its state, and knows the size that fits.
        needs_one = any(getattr(part, "state_size", None) for part in plain.parts)
        size = self.state_size or (self.model_size if needs_one else None)
        return cell_config(self.cell, {"state_size": size} if size else {}).factory()
