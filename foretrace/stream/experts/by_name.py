"""The experts of a stream by name, and the choice of those that are not too large for it."""

from collections.abc import Mapping

from foretrace._learner.learner import Learner
from foretrace.stream.experts.answer import Classes, answer_of
from foretrace.stream.experts.baselines import ClassBaselines, NumberBaselines
from foretrace.stream.experts.bayes import Bayes
from foretrace.stream.experts.contexts import ORDERS, Contexts
from foretrace.stream.experts.distant import Distant
from foretrace.stream.experts.expert import AbstractExpert
from foretrace.stream.experts.gradient import Gradient
from foretrace.stream.experts.least_squares import Squares
from foretrace.stream.experts.memory import Memory
from foretrace.stream.experts.neighbours import Neighbours
from foretrace.stream.experts.network import RecurrentNetwork
from foretrace.stream.experts.outside import Outside
from foretrace.stream.experts.raw_squares import RAW_PRIORS, RawSquares
from foretrace.stream.experts.seasonal import Seasonal
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.experts.shape import LABELS, WIDE, Shape
from foretrace.stream.experts.words import Words

SETS = ("row", "lags", "wide", "waves", "steps")
"""Sets of features on which least squares are learned."""

REMEMBERING: dict[str, type[AbstractExpert]] = {"memory": Memory, "distant": Distant}
"""Experts outside of groups. The method `of` of each makes the expert for a stream."""

Own = tuple[tuple[str, type[AbstractExpert]], ...]
"""The user's experts, by name."""

EXPERTS = (
    "baselines",
    "contexts",
    *SETS,
    "raw",
    "seasonal",
    "neighbours",
    "gradient",
    "words",
    "events",
    "network",
    *REMEMBERING,
)
"""Names of the groups of experts."""

OF_CLASSES = ("contexts", "gradient")
"""Groups that predict only classes."""

OF_NUMBERS = ("raw", "seasonal")
"""Groups that predict only numbers."""


def experts_of(
    shape: Shape, wanted: tuple[str, ...], network: Learner | None = None, own: Own = ()
) -> tuple[tuple[AbstractExpert, ...], tuple[str, ...]]:
    """Return the experts for a stream, and the names of the groups that are left out.

    The baselines come first. A group is left out if it would be too large. If all wanted sets for
    least squares would be too large, `row` replaces them.

    Args:
        shape: sizes of the stream.
        wanted: names of groups.
        network: learner of the recurrent network. Default: no network.
        own: the user's experts, which come last.
    """
    sizes = {
        "row": shape.size(0) + shape.code_size,
        "lags": shape.size(shape.depth),
        "steps": shape.steps_size,
        "neighbours": WIDE if shape.classes else WIDE // 2,
        **dict.fromkeys(("contexts", "words"), 0),
    }
    outputs, first, answer = shape.outputs, shape.first_outputs, answer_of(shape)
    groups: dict[str, tuple[AbstractExpert, ...]] = dict.fromkeys(SETS, ())
    if not shape.has_steps:
        del groups["steps"]
    groups["events"] = (Squares(("wide_events",), (WIDE,), answer, of_events=True),)
    if shape.has_raw:
        names = tuple(RAW_PRIORS)[: 2 if shape.raw_depth else 1]
        raws = tuple(sizes[name.removeprefix("raw_")] for name in names)
        groups["raw"] = (RawSquares(names, raws, outputs, 1 + shape.row_size - shape.num_raw),)
    of_row, with_past = shape.size(0), shape.size(shape.short_depth)
    groups["neighbours"] = ()
    if with_past > of_row:
        groups["neighbours"] += (Neighbours("neighbours", with_past, answer),)
    if of_row > 1:
        # If the past does not matter, it only hides which rows are alike.
        groups["neighbours"] += (Neighbours("row neighbours", of_row, answer),)
    if isinstance(answer, Classes):
        groups["contexts"] = (
            Contexts(outputs, ORDERS if shape.previous else 0, 18 if first > 32 else 16),
        )
        groups["gradient"] = (Gradient("softmax", sizes["lags"], answer, TUNED.softmax_rates),)
        found: list[AbstractExpert] = [ClassBaselines(outputs)]
    else:
        found = [NumberBaselines(outputs, LABELS)]
        ahead = tuple((shape.delays - (shape.horizon > 0)).tolist())
        if ahead[0] < LABELS // 2:
            groups["seasonal"] = (Seasonal(ahead, LABELS),)
    if shape.words:
        groups["words"] = (Words(shape.row_inputs, shape.words, answer),)
        if shape.classes:
            groups["words"] += (Bayes(shape.words, outputs),)
    large = {name for name in groups if sizes.get(name, WIDE) > shape.most_features}
    squares = {name for name in SETS if name in groups and name in wanted}
    if squares and squares <= large:
        wanted = (*wanted, "row")
    chosen = [name for name in EXPERTS if name in groups and name in wanted and name not in large]
    left_out = [name for name in EXPERTS if name in large and name in wanted]
    if sets := tuple(name for name in SETS if name in chosen):
        groups[sets[0]] = (Squares(sets, tuple(sizes.get(name, WIDE) for name in sets), answer),)
    for name in chosen:
        found += groups[name]
    if network is not None:
        found.append(RecurrentNetwork(network, answer))
    if shape.outside:
        found.append(Outside(shape.outside))
    alone = {name: kind.of(shape) for name, kind in REMEMBERING.items() if name in wanted}
    alone |= {name: kind.of(shape) for name, kind in own}
    left_out += [name for name, expert in alone.items() if expert is None]
    return (*found, *filter(None, alone.values())), tuple(left_out)


def own_experts(experts: Mapping[str, type[AbstractExpert]] | None) -> Own:
    """Check the user's experts, and return them as pairs of name and class.

    Raises:
        ValueError: a name belongs to another expert.
        TypeError: an entry is not a class of experts.
    """
    if experts is None:
        return ()
    if not isinstance(experts, Mapping):
        raise TypeError(
            f"experts={experts!r}, expected a dictionary from name to class, as {{'mine': Mine}}; "
            "names of foretrace's own experts go to ModelConfig(experts=…)"
        )
    for name, kind in experts.items():
        if name in EXPERTS:
            raise ValueError(f"experts: {name!r} names an expert of foretrace; take another name")
        if not (isinstance(kind, type) and issubclass(kind, AbstractExpert)):
            raise TypeError(
                f"experts[{name!r}]={kind!r}, expected a subclass of ft.stream.AbstractExpert"
            )
    return tuple((str(name), kind) for name, kind in experts.items())
