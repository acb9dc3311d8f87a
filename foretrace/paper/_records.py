"""Records of finished runs in `records.jsonl`, from which tables and figures are made."""

import dataclasses
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, Literal

from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.directory import Run, read_begun
from foretrace._runs.metrics import MetricsLog, read_metrics
from foretrace.experiment._config import Config
from foretrace.experiment._scores import Scores
from foretrace.paper._experiment import Entry, Experiment

RECORDS_FILE = "records.jsonl"
Purpose = Literal["search", "report"]
"""Whether a run chooses a learning rate or is reported."""


def read_records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of finished runs in a folder; an empty list if there is no file.

    Raises:
        MetricsError: the file has lines that are no runs.
    """
    path = Path(folder) / RECORDS_FILE
    return [r for r in read_metrics(path) if r["kind"] == "run"] if path.exists() else []


def append_record(folder: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Append a finished run, and wait until it is on the disk; remove an incomplete last line.

    Raises:
        OSError: the file cannot be written.
        MetricsError: the file has lines that are no runs.
    """
    with MetricsLog(Path(folder) / RECORDS_FILE, resume_at=sys.maxsize) as log:
        log.write("run", **record)
        log.file.sync()


def record_of(
    experiment: Experiment, entry: Entry, purpose: Purpose, config: Config, run: Run, scores: Scores
) -> dict[str, Any]:
    """Return the record of a finished run, collected from its run directory."""
    lines, curve = read_metrics(run.metrics), dict[int, dict[str, Any]]()
    for line in lines:
        if line["step"]:
            curve.setdefault(line["step"], {"step": line["step"]}).update(_seen(line))
    points, diverged = list(curve.values()), math.isnan(scores.loss)
    best_step = lines[-1].get("best_step")
    chosen = {} if diverged else curve[best_step or config.steps]
    plain = to_json(config)
    plain["task"].pop("data_dir", None)  # a path on this machine
    return {
        "step": config.steps,
        "experiment": experiment.name,
        "scale": experiment.scale,
        "entry": entry.name,
        "purpose": purpose,
        "seed": config.seed,
        "rate": config.optimizer.learning_rate,
        "training_loss": math.nan if diverged else points[-1]["training_loss"],
        "validation": {name: chosen.get(name, math.nan) for name in Scores._fields},
        "test": scores._asdict() if purpose == "report" else None,
        "best_step": best_step,
        "curve": points,
        "seconds": max(line.get("seconds", 0.0) for line in lines),
        "config": plain,
        "surroundings": read_begun(run, "surroundings"),
    }


def _seen(line: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a curve's point that a record line contains."""
    if line["kind"] == "train":
        return {"training_loss": line["loss"], "refused": line["refused"]}
    if line["kind"] == "validation":
        return {name: line[name] for name in Scores._fields}
    if line["kind"] == "alignment":
        return {"alignment": {"layers": line["layers"], "total": line["total"]}}
    return {}


def identity(experiment: str, scale: str, entry: str, purpose: str, config: Config) -> tuple:
    """Return the identity of a run: its purpose, and the settings that affect learning.

    A setting that a later version adds does not change the identity of earlier runs.
    """
    learned = dataclasses.replace(config.unobserved(), task=config.task.with_data_dir(""))
    return experiment, scale, entry, purpose, learned


def identity_of(record: dict[str, Any]) -> tuple:
    """Return the identity of a recorded run.

    If the run has a setting that this version does not know, the identity equals no planned run's.
    """
    purpose = (record["experiment"], record["scale"], record["entry"], record["purpose"])
    try:
        return identity(*purpose, from_json(Config, record["config"]))
    except ValueError:
        return *purpose, json.dumps(record["config"], sort_keys=True)
