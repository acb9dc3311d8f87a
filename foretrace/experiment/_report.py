"""Report of a run: a table and a figure, made only from the run's records."""

import dataclasses
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

from foretrace._engine.alignment import Alignment
from foretrace._engine.carry import carry_size
from foretrace._engine.operations import operation_count
from foretrace._options.network import NetworkConfig
from foretrace._rule import as_rule
from foretrace._runs.directory import RunError, read_config_as
from foretrace._runs.figures import Panel, draw_metrics
from foretrace._runs.saved import read_run
from foretrace.experiment._config import Config
from foretrace.tasks._files import DataError
from foretrace.tasks.copy import Copy

TABLE_1 = {"spatial": 4.66e-1, "truncated": 2.62e-1, "online": 8.44e-3, "bptt": 7.59e-6}
"""Final training loss on the copy task in the paper's Table 1, column LRU x 4, mean of 5 seeds."""


def published(config: Config) -> float | None:
    """Return the loss of a configuration in the paper's Table 1, or None if it is not there.

    >>> published(Config())
    0.00844
    """
    task = config.task
    same_task = isinstance(task, Copy) and dataclasses.replace(task, samples=None) == Copy()
    same_network = dataclasses.replace(config.network, dropout=0.0) == NetworkConfig()
    return TABLE_1.get(config.rule) if same_task and same_network else None


def table(run_dir: str | os.PathLike[str]) -> Any:
    """Return the table of a run, for printing with rich.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
    """
    from rich.table import Table

    config, records = read_run(run_dir, Config)
    last = next((r for r in reversed(records) if r["kind"] in ("result", "validation")), None)
    if last is None:
        raise RunError(f"{run_dir} has nothing to report yet")
    what = config.task.recalled
    score = getattr(config.task, "score_name", "classified rightly")
    names = [f"{what} recalled", "whole sequences"] if what else [score]
    grid = Table("", "loss", *names, title=_title(config))
    shares = [f"{last[name]:.2%}" for name in ("accuracy", "sequences")[: len(names)]]
    ours = f"this run (step {last['step']} of {config.steps})"
    grid.add_row(ours, f"{last['loss']:.2e}", *shares)
    if (loss := published(config)) is not None:
        grid.add_row("the paper, Table 1", f"{loss:.2e}", "", "")
    grid.caption = _caption(config, last)
    return grid


def _title(config: Config) -> str:
    cell = config.network.cell.title
    return f"{type(config.task).__name__}, rule {config.rule}, {cell} x {config.network.depth}"


def _caption(config: Config, last: dict[str, Any]) -> str:
    split = "test" if last["kind"] == "result" else "validation"
    sequences = config.final_sequences if split == "test" else config.validation_sequences
    on = f"{sequences} new sequences"
    if config.task.recalled is None:
        on = f"at most {sequences} sequences of the {split} split"
    try:
        source = config.task.provenance
    except DataError:  # a report is made from the records alone
        source = "data that are not there now"
    ours = (
        f"This run: evaluated on {on}; trained on {source}, {config.steps} steps "
        f"of {config.batch_size}, seed {config.seed}, {last['seconds']:.0f} s."
    )
    theirs = " The paper: training loss, mean of 5 seeds, 20,000 patterns drawn once, 25 epochs."
    return ours + (theirs if published(config) is not None else "")


def costs(run_dir: str | os.PathLike[str]) -> str:
    """Return a sentence about the operations of a step and the numbers that it carries.

    Raises:
        RunError: there is no run, or it belongs to another command.
    """
    config = read_config_as(run_dir, Config)
    sizes = config.task.input_size, config.task.output_size
    network = jax.eval_shape(partial(config.network.drawn, *sizes), jax.random.key(0))
    rule, whole = as_rule(config.rule), config.chunk is None
    length = min(config.chunk or config.task.length, config.task.length)
    count = operation_count(network, rule, length, whole_sequences=whole)
    carried = f"{carry_size(network, rule):,} numbers"
    kept = f"{carried} are carried for each"
    if whole:
        kept = "whole sequences are kept" + f" (streamed: {carried} for each)" * rule.carried
    return f"One step of one sequence takes about {count / 1e6:.2g} million operations; {kept}."


def figure(run_dir: str | os.PathLike[str]) -> str:
    """Draw loss, accuracy and alignment of a run into `curves.png`, and return the path.

    Raises:
        RunError: there is no run, or the run has no measurement yet.
        OSError: the file cannot be written.
    """
    config, records = read_run(run_dir, Config)
    aligned = [r for r in records if r["kind"] == "alignment"]
    steps = [r["step"] for r in aligned]
    layers = enumerate(zip(*(r["layers"] for r in aligned), strict=True), 1)
    cosines = {f"layer {at}": [*zip(steps, values, strict=True)] for at, values in layers}
    what, reference = config.task.recalled, published(config)
    levels = {} if reference is None else {"the paper, Table 1": reference}
    panels = [
        Panel("loss", _curves(records, "loss"), levels),
        Panel(f"share of {what} recalled" if what else "accuracy", _curves(records, "accuracy")),
        Panel("cosine with BPTT, recurrent coefficients", cosines),
    ]
    return draw_metrics(run_dir, _title(config), panels)


def alignment_tables(found: dict[str, Alignment], rule: str, config: Config) -> list[Any]:
    """Return two tables for rich: all rules by layer, and all parameters under one rule.

    Args:
        found: alignment of each rule.
        rule: rule of the second table.
        config: configuration that was measured.
    """
    from rich.table import Column, Table

    ways = "whole sequences" if config.chunk is None else f"chunks of {config.chunk} steps"
    how = (
        f"The gradient of each rule in {ways}, summed over {config.batch_size} validation "
        f"sequences of {config.task.length} steps, beside that of BPTT on whole sequences; seed "
        f"{config.seed}."
    )
    depth = len(found[rule].layer_cosine)
    layers = [f"layer {i + 1}" for i in range(depth)]
    title = "cosine with BPTT, recurrent coefficients of each layer"
    rules = Table("rule", *layers, "whole gradient", title=title, caption=how)
    for name, one in found.items():
        rules.add_row(name, *map(_number, one.layer_cosine), _number(one.total))
    one = found[rule]
    title = f"cosine with BPTT under {rule}, and the ratio of norms to BPTT's"
    parameters = Table(
        Column("parameter", no_wrap=True), *layers, "outside", "norm\nratio", title=title
    )
    for name, cosine in one.cosine.items():
        each = [_number(value) for value in np.atleast_1d(cosine)]
        row = [*[""] * depth, *each] if isinstance(cosine, float) else [*each, ""]
        ratio = _range(np.atleast_1d(one.norm_ratio[name]))
        parameters.add_row(name.removeprefix("blocks."), *row, ratio)
    return [rules, parameters]


def _curves(records: Sequence[dict[str, Any]], name: str) -> dict[str, list[tuple[int, float]]]:
    kinds = ("train", "validation")
    return {kind: [(r["step"], r[name]) for r in records if r["kind"] == kind] for kind in kinds}


def _number(value: float) -> str:
    return "no gradient" if np.isnan(value) else f"{value:.4f}"


def _range(values: np.ndarray) -> str:
    if np.isnan(values).all():
        return ""
    low, high = np.nanmin(values), np.nanmax(values)
    return f"{low:.2f}" if f"{low:.2f}" == f"{high:.2f}" else f"{low:.2f}–{high:.2f}"
