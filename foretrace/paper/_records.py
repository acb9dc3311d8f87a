"""Records of finished runs in `records.jsonl`, from which tables and figures are made."""

import dataclasses
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.metrics import MetricsLog, read_metrics
from foretrace.experiment._config import Config

RECORDS_FILE = "records.jsonl"
_ALL = sys.maxsize


def read_records(folder: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Return the records of finished runs in a folder; none if there is no file.

    Raises:
        MetricsError: the file holds something else.
    """
    path = Path(folder) / RECORDS_FILE
    return [r for r in read_metrics(path) if r["kind"] == "run"] if path.exists() else []


def append_records(folder: str | os.PathLike[str], records: list[dict[str, Any]]) -> None:
    """Append finished runs and wait for the disk. A torn line of an earlier attempt is cut off.

    Raises:
        OSError: the file cannot be written.
        MetricsError: it holds something else.
    """
    with MetricsLog(Path(folder) / RECORDS_FILE, resume_at=_ALL) as log:
        for record in records:
            log.write("run", record["step"], **{k: v for k, v in record.items() if k != "step"})
        log.sync()


def recorded(config: Config) -> dict[str, Any]:
    """Return a configuration as recorded, without the place of the data on this machine."""
    plain = to_json(config)
    plain["task"].pop("data_dir", None)
    return plain


def identity(experiment: str, scale: str, entry: str, purpose: str, config: Config) -> str:
    """Return a digest that identifies a run: its purpose and its settings other than defaults.

    So a run stays the same run when a setting is added.
    """
    plain = _chosen(config)
    plain.get("task", {}).pop("data_dir", None)
    return _digest(experiment, scale, entry, purpose, plain)


def identity_of(record: dict[str, Any]) -> str:
    """Return the identity of a recorded run.

    A run with a setting that this version does not have is none of those that this version plans.
    """
    purpose = (record["experiment"], record["scale"], record["entry"], record["purpose"])
    try:
        return identity(*purpose, from_json(Config, record["config"]))
    except ValueError:
        return _digest(*purpose, record["config"])


def _chosen(config: Any) -> Any:
    """Return a configuration as JSON without the settings that have their default."""
    if not dataclasses.is_dataclass(config):
        return config
    fields = ((field, getattr(config, field.name)) for field in dataclasses.fields(config))
    values = {field.name: _chosen(value) for field, value in fields if value != field.default}
    return {"type": type(config).__name__, **values}


def _digest(*parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
