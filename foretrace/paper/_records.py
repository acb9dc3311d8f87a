"""Records of finished runs: `records.jsonl`, one JSON object for each run, from which tables and figures are made."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.metrics import MetricsLog, read_metrics
from foretrace.experiment._config import Config

FILE = "records.jsonl"


_ALL = sys.maxsize


def read_records(folder: str | os.PathLike) -> list[dict[str, Any]]:
    """Return the records of finished runs in a folder; none if there is no file.

    Raises:
        MetricsError: the file holds something else.
    """
    path = Path(folder) / FILE
    return [r for r in read_metrics(path) if r["kind"] == "run"] if path.exists() else []


def append_records(folder: str | os.PathLike, records: list[dict[str, Any]]) -> None:
    """Append finished runs, and wait until they are on the disk; a torn line of an earlier attempt is cut off.

    Raises:
        OSError: the file cannot be written.
        MetricsError: it holds something else.
    """
    with MetricsLog(Path(folder) / FILE, resume_at=_ALL) as log:
        for record in records:
            log.write("run", record["step"], **{k: v for k, v in record.items() if k != "step"})
        log.sync()


def recorded(config: Config) -> dict[str, Any]:
    """Return a configuration as a record holds it: where the data lie on this machine is no part of a run."""
    plain = to_json(config)
    plain["task"].pop("data_dir", None)
    return plain


def identity(experiment: str, scale: str, entry: str, purpose: str, config: Config) -> str:
    """Return a digest of what makes a run the same run: its full configuration, and what it is for."""
    plain = recorded(config)
    # Runs that were begun before there were these options go on.
    for name in ("predict_errors", "credit_groups", "credit_columns", "credit_modules"):
        if not getattr(config, name):
            del plain[name]
    return hashlib.sha256(json.dumps([experiment, scale, entry, purpose, plain], sort_keys=True).encode()).hexdigest()


def identity_of(record: dict[str, Any]) -> str:
    """Return the identity of a recorded run; a setting that is newer than the record has its default.

    Raises:
        ValueError: a configuration that this version cannot read.
    """
    config = from_json(record["config"])
    return identity(record["experiment"], record["scale"], record["entry"], record["purpose"], config)
