"""Records of finished runs: `records.jsonl`, one JSON object for each run, from which tables and figures are made."""

import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from foretrace._runs.config_json import to_json
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
    return _digest(experiment, scale, entry, purpose, recorded(config))


def identity_of(record: dict[str, Any]) -> str:
    """Return the identity of a recorded run.

    Settings that are off do not count. So the record may be older than a setting, or hold one that was taken out since.
    """
    return _digest(record["experiment"], record["scale"], record["entry"], record["purpose"], record["config"])


def _digest(experiment: str, scale: str, entry: str, purpose: str, config: dict[str, Any]) -> str:
    what = [experiment, scale, entry, purpose, _switched_on(config)]
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()


def _switched_on(config: Any) -> Any:
    """Return a configuration as JSON without the settings that are null, false or zero."""
    if not isinstance(config, dict):
        return config
    return {name: _switched_on(value) for name, value in config.items() if value not in (None, False, 0)}
