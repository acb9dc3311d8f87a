"""The description of a service's routes in OpenAPI 3.1, with the columns of its run."""

from typing import Any

from foretrace.stream.model.intake import Intake
from foretrace.stream.read.target import ClassTarget
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.serve.desk import LONGEST_ID

_TYPES = {
    "numeric": {"type": ["number", "null"]},
    "time": {"type": ["string", "null"]},
    "categorical": {"type": ["string", "number", "boolean", "null"]},
    "text": {"type": ["string", "null"]},
    "undecided": {},
}

_CODES = {
    "401": "the token is missing or wrong",
    "403": "the service learns nothing (--freeze)",
    "404": "no row of this id was asked for, or the run has no such thing",
    "408": "the body came too slowly",
    "409": "the row has another label, or has its label already",
    "410": "the row was forgotten: it has waited too long",
    "413": "the body is too large",
    "422": "a column, an id or a label is wrong; the text names it",
    "503": "the service is busy or stops; ask again",
    "507": "the disk of the journal is full; nothing was learned",
}


def description(config: StreamConfig, intake: Intake, name: str) -> dict[str, Any]:
    """Return the description of the routes of a run.

    Args:
        config: configuration of the run.
        intake: its columns and classes.
        name: its name, in the routes of KServe.
    """
    columns = {
        str(column): _TYPES[kind]
        for column, (kind, _) in intake.encoder.columns.items()
        if not str(column).startswith("time since the last ")
    }
    if config.member is not None:
        columns[config.member] = {"type": ["string", "integer"]}
    row = {"type": "object", "properties": columns}
    id = {"type": ["string", "integer"], "minLength": 1, "maxLength": LONGEST_ID}
    y: dict[str, Any] = {"type": "number"}
    if isinstance(intake.target, ClassTarget):
        y = {"type": ["string", "number", "boolean"], "examples": intake.target.classes[:8]}
    paths = {
        "/predict": _post(
            "Take a row, and predict its target", {"id": id, "row": row}, ["id", "row"], "200"
        ),
        "/label": _post("Learn the label of a row", {"id": id, "y": y}, ["id", "y"], "202"),
        "/rows": _post(
            "Take rows and labels as lines of JSON, and answer each", {}, [], "200", lines=True
        ),
        f"/v2/models/{name}/infer": _post(
            "Take rows by KServe's protocol",
            {"inputs": {"type": "array", "items": {"type": "object"}}},
            ["inputs"],
            "200",
        ),
    }
    for path, what in {
        "/forecast": "The next values of each member",
        "/v2/health/live": "Whether there is a service",
        "/v2/health/ready": "Whether requests are answered",
        "/metrics": "Metrics for Prometheus",
        "/state.json": "What the page shows",
    }.items():
        paths[path] = {"get": {"summary": what, "responses": _responses("200")}}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"foretrace: {name}", "version": "1"},
        "paths": paths,
    }


def _post(
    what: str, properties: dict[str, Any], required: list[str], code: str, *, lines: bool = False
) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": properties, "required": required}
    kind, schema = ("text/plain", {"type": "string"}) if lines else ("application/json", schema)
    body = {"required": True, "content": {kind: {"schema": schema}}}
    return {"post": {"summary": what, "requestBody": body, "responses": _responses(code)}}


def _responses(code: str) -> dict[str, Any]:
    found = {code: {"description": "done; on disk, where something was sent"}}
    return found | {one: {"description": text} for one, text in _CODES.items()}
