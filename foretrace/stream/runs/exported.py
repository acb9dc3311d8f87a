"""The model of a run of `foretrace stream` as a C program that learns from raw rows."""

import json
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._export.export import Exported, export_stream
from foretrace._graph.step import Graph, check_learner, traced_graph
from foretrace._learner.packing import Packed
from foretrace._types import Array
from foretrace.stream.model.intake import Intake, State
from foretrace.stream.model.state import Mixed, MixtureState, network_in, with_network
from foretrace.stream.read.row import RawRow
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.read.values import MAX_ABS_VALUE
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.first_look import KINDS
from foretrace.stream.runs.saved import opened


def export_run(run_dir: str | os.PathLike[str], path: str | os.PathLike[str]) -> Exported:
    """Write the model of a run's last checkpoint as C.

    The program contains the running means and scales, the experts and their mixture. It takes
    unscaled numbers, predicts and learns as the run would from the next rows, and returns the
    surprise of labels. It does not contain prediction intervals and scores.

    Args:
        run_dir: directory of the run.
        path: C file to write.

    Raises:
        RunError: the directory is no run, or has no checkpoint.
        ValueError: the rows have columns that C cannot read, such as texts or dates.
        CheckpointError: the checkpoint is damaged.
        OSError: the folder is missing or not writable.
    """
    run = opened(run_dir)
    config, intake = run.config, run.intake
    _check(Path(run_dir), config)
    _check_kinds(Path(run_dir), intake)
    step, predict = stream_graphs(intake, run.state)
    about = _about(config, intake)
    return export_stream(path, step, predict, _notes(about), about)


def stream_graphs(intake: Intake, state: State) -> tuple[Graph, Graph]:
    """Return two graphs: one learns from a row, and the other predicts it."""
    mixture, shape = intake.mixture, intake.shape
    places = np.asarray([at for _, at in intake.encoder.columns.values()], int)
    is_number = np.zeros(shape.inputs)
    is_number[places] = 1.0
    with jax.enable_x64(True):
        learned = mixture.packing.unpack(state) if isinstance(state, Packed) else state
        if mixture.network is not None:
            check_learner(mixture.network)
        start = with_network(_with_key(learned, None), refusals=None)
        start = start._replace(intervals=None, sums=None, tallies=None)

        def raw(x: Array, y: Array) -> RawRow:
            none = jnp.zeros(())
            values = jnp.zeros(shape.inputs).at[places].set(_finite(x))
            return RawRow(x=values, is_number=jnp.asarray(is_number), y=y, slot=none, is_new=none)

        def step(before: MixtureState, x: Array, y: Array) -> tuple[list[Array], MixtureState]:
            label = y.astype(x.dtype)
            is_class = (label >= 0) & (label < shape.outputs)
            label = jnp.where(is_class, label, jnp.nan) if shape.classes else _finite(label)
            state = _with_key(before, jax.random.key(0))
            after, mixed = mixture.pure.step(state, mixture.maps, raw(x, label))
            assert mixed.surprise is not None
            return [_read(mixed), mixed.surprise[None]], _with_key(after, None)

        def predict(before: MixtureState, x: Array) -> tuple[list[Array], MixtureState]:
            state = _with_key(before, jax.random.key(0))
            return [
                _read(mixture.pure.predict(state, mixture.maps, raw(x, jnp.asarray(jnp.nan))))
            ], before

        shapes = {
            "x": jax.ShapeDtypeStruct((len(places),), jnp.float64),
            "y": jax.ShapeDtypeStruct((), jnp.int32 if shape.classes else jnp.float64),
        }
        return (
            traced_graph(step, start, "", shapes, ["outputs", "surprise"]),
            traced_graph(predict, start, "", {"x": shapes["x"]}, ["outputs"]),
        )


def _with_key(state: MixtureState, key: Any) -> MixtureState:
    """Return a state with another PRNG key, because the C program uses no key."""
    network = network_in(state)
    return (
        state if network is None else with_network(state, learner=network.learner._replace(key=key))
    )


def _finite(values: Array) -> Array:
    return jnp.where(jnp.abs(values) < MAX_ABS_VALUE, values, jnp.nan)


def _read(mixed: Mixed) -> Array:
    """Return the prediction: numbers, or the probabilities of the known classes."""
    output = mixed.newest
    if mixed.num_classes is None:
        return output
    known = jnp.arange(len(output), dtype=output.dtype) < mixed.num_classes
    largest = jnp.where(known, output, -jnp.inf).max()
    weights = jnp.where(known, jnp.exp(output - largest), 0.0)
    return weights / jnp.maximum(weights.sum(), 1e-300)


def _check(path: Path, config: StreamConfig) -> None:
    """Raise a ValueError with the reason if a run cannot become a C program."""
    reasons = {
        "reads a text symbol by symbol; a C program takes rows of numbers": config.target is None,
        "has members or episodes (--member, --reset), and a C program is one stream; begin a run "
        "on the rows of one member, without --reset": config.has_members,
        "has labels that come by their ids (--waiting), and a C program takes each with its row": (
            config.waiting > 0
        ),
        "has predictions of other models (--expert-column), which a C program does not take": (
            config.expert_column != ()
        ),
        "has --outliers stop, and nothing stops a C program; resume it with --outliers clip or "
        "mask": config.outliers == "stop",
    }
    for reason, holds in reasons.items():
        if holds:
            raise ValueError(f"{path} cannot be exported: it {reason}")


def _check_kinds(path: Path, intake: Intake) -> None:
    for name, (kind, _) in intake.encoder.columns.items():
        if kind != "numeric":
            raise ValueError(
                f"{path} cannot be exported: column {str(name)[:80]!r} is one of {KINDS[kind]}, "
                "and a C program takes numbers alone; begin a run with --ignore "
                f"{str(name)[:80]}, or write the column as numbers and say --numeric"
            )


def _about(config: StreamConfig, intake: Intake) -> dict[str, Any]:
    """Return the header's description of rows, labels and outputs."""
    found: dict[str, Any] = {
        "columns": list(intake.encoder.columns),
        "target": config.target,
        "delay": config.delay,
        "horizon": config.horizon,
    }
    if isinstance(intake.target, ClassTarget):
        found["classes"] = intake.target.classes
    return found


def _notes(about: dict[str, Any]) -> list[str]:
    """Return the C header's comment on rows, labels and outputs."""
    columns, target = (json.dumps(about[name]) for name in ("columns", "target"))
    whose = f"the row {about['delay']} rows before" if about["delay"] else "the same row"
    ahead = f" at each of the next {about['horizon']} rows" if about["horizon"] else ""
    lines = [f"x: {columns}, NAN where a number is missing."]
    if "classes" in about:
        lines += [
            f"y: {target} of {whose}, the index of a class, negative where it is missing.",
            f"outputs: probability of each class. Classes: {json.dumps(about['classes'])};",
            "new ones take the next indices.",
        ]
    else:
        lines += [
            f"y: {target} of {whose}, NAN where it is missing.",
            f"outputs: {target}{ahead}.",
        ]
    lines.append("surprise: how unusual the label is, NAN where this is not known.")
    return [line.replace("*/", "* /").replace("/*", "/ *") for line in lines]
