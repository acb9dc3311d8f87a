"""Options that were given and do nothing, each with the reason and how to get it: a run says so before it learns."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

from foretrace.stream._config import StreamConfig
from foretrace.stream._model_config import OF_SIZE, ModelConfig
from foretrace.stream._plan import Plan

_OF_NETWORK = ("rule", "learning_rate", "clip", "r_min", "r_max", "recurrent_factor", "seed")
"""Options of the network that have other defaults than None."""

_OF_CELL = ("state_size", "r_min", "r_max")
"""Options of the network that not every cell has."""

_OF_COLUMNS = ("numeric", "categorical", "time", "ignore", "outliers", "bound", "categories", "look_ahead")
"""Options that a text has no use for."""

NO_NETWORK = "no network takes part; name a size for one, or add network to the experts"


class NoEffect(NamedTuple):
    """Options that do nothing, and the reason."""

    names: Sequence[str]
    reason: str

    def __str__(self) -> str:
        """Return a line that names the options as in Python."""
        return self.line("", "_")

    def on_command_line(self) -> str:
        """Return a line that names the options as on the command line."""
        return self.line("--", "-")

    def line(self, before: str, between: str) -> str:
        """Return a line whose options are written in one way."""
        shown = ", ".join(before + name.replace("_", between) for name in self.names)
        return f"{shown} {'has' if len(self.names) == 1 else 'have'} no effect: {self.reason}"


def without_effect(config: StreamConfig, plan: Plan, format: str) -> list[NoEffect]:
    """Return the options of a run that were given and have no effect.

    Args:
        config: options of the run.
        plan: what the first rows decided.
        format: format of the source.
    """
    found = without_effect_on_model(config.model, ModelConfig(), classes=bool(plan.classes))
    for names, is_void, reason in _reasons(config, plan, format):
        if is_void and (given := _given(config, StreamConfig(""), names)):
            found.append(NoEffect(given, reason))
    return found


def without_effect_on_model(model: ModelConfig, default: ModelConfig, *, classes: bool) -> list[NoEffect]:
    """Return the options of a model that were given and have no effect.

    Args:
        model: options of the model.
        default: options if none is given.
        classes: whether classes are predicted.
    """
    experts, found = model.expert_names(), []
    if "network" not in experts:
        if given := _given(model, default, _OF_NETWORK):
            found.append(NoEffect(given, NO_NETWORK))
        if model.size not in OF_SIZE:
            found.append(NoEffect(["size"], f"the experts are {' '.join(experts)}; add network to them"))
    else:
        of_other_cells = [name for name in _OF_CELL if name not in model.cell_options()]
        if given := _given(model, default, of_other_cells):
            found.append(NoEffect(given, f"the cell {model.cell} has no such option"))
    if not classes and model.experts is not None and "contexts" in model.experts:
        found.append(NoEffect(["experts contexts"], "it predicts classes, and the target is a number"))
    return found


def _reasons(config: StreamConfig, plan: Plan, format: str) -> list[tuple[Sequence[str], bool, str]]:
    """Return groups of options, whether they have no effect, and the reason."""
    kinds = {column.kind for column in plan.columns}
    has_network = "network" in config.model.expert_names()
    is_text = format == "text"
    return [
        (["target_mode"], bool(plan.classes), "the target is a class"),
        (
            ["target_mode"],
            not plan.classes and not has_network,
            NO_NETWORK,
        ),
        (["coverage"], bool(plan.classes), "intervals are of numbers, and the target is a class"),
        (["classes"], not plan.classes, "the target is a number; say --task classification if it is a class"),
        (["members", "when_full"], config.member is None, "there are no members; name their column by --member"),
        (["delimiter"], format not in ("csv", "tsv"), f"{format} has no delimiter; say --format csv if it is one"),
        (["encoding"], format == "parquet", "parquet is no text"),
        (["bad_rows"], format in ("parquet", "text"), f"no single row of {format} can be unreadable"),
        (_OF_COLUMNS, is_text, "a text has no columns"),
        (["categories"], not is_text and "categorical" not in kinds, "no column is categorical; name it --categorical"),
        (
            ["outliers", "bound"],
            not is_text and "numeric" not in kinds and bool(plan.classes),
            "neither a column nor the target is a number; name columns of numbers by --numeric",
        ),
    ]


def _given(config: Any, default: Any, names: Sequence[str]) -> list[str]:
    """Return the options that are not at their default."""
    assert {*names} <= {field.name for field in dataclasses.fields(config)}
    return [name for name in names if getattr(config, name) != getattr(default, name)]
