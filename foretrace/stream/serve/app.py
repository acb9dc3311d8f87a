"""The routes of a service: they pass HTTP requests to its desk, and return the answers."""

import asyncio
import hmac
import json
import math
import threading
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from typing import Any

import prometheus_client as prometheus
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.requests import Request as Call
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from foretrace.stream.serve.desk import Refusal, Request, checked_id, parsed
from foretrace.stream.serve.gauges import Gauges
from foretrace.stream.serve.openapi import description
from foretrace.stream.serve.service import Serving

LARGEST = 2**20
"""Maximum number of bytes of a request body, and of a line in /rows."""

_PATIENCE = 30.0
"""Seconds within which a request body must arrive."""

_AHEAD = 256
"""Maximum number of lines of a /rows request that are in the queue at the same time."""

_RECENT = 2000
"""Number of the last requests whose times the page shows."""

_CONNECTIONS = 4096

_PAGE = files("foretrace.stream.serve").joinpath("page.html").read_text()


class App:
    """The routes of one service.

    Args:
        service: the run of the service.
        name: name of the model in the routes of KServe's protocol.
        token: token that a client must send as `Authorization: Bearer TOKEN`. None if no token is
            needed.
    """

    def __init__(self, service: Serving, name: str, token: str | None):
        self.service, self.name, self.token = service, name, token
        self.times: deque[tuple[float, float]] = deque(maxlen=_RECENT)
        registry = self.registry = prometheus.CollectorRegistry()
        self.seconds = prometheus.Histogram(
            "foretrace_seconds", "Time of a request", ["route"], registry=registry
        )
        self.answers = prometheus.Counter(
            "foretrace_answers", "Answers by route and code", ["route", "code"], registry=registry
        )
        self.values: dict[str, float] = {}
        registry.register(Gauges(lambda: {(): self.values}))

    def routes(self) -> Starlette:
        """Return the application with all routes."""
        post, get = ["POST"], ["GET"]
        infer = f"/v2/models/{self.name}/infer"
        return Starlette(
            routes=[
                self._route("/predict", self.predict, post),
                self._route("/label", self.label, post),
                self._route("/rows", self.rows, post),
                self._route("/forecast", self.forecast, get),
                self._route(infer, self.infer, post),
                self._route("/v2/health/live", self.live, get, is_open=True),
                self._route("/v2/health/ready", self.ready, get, is_open=True),
                self._route("/metrics", self.metrics, get),
                self._route("/openapi.json", self.openapi, get),
                self._route("/state.json", self.state, get),
                self._route("/", self.page, get, is_open=True),
            ]
        )

    def _route(
        self, path: str, does: Callable[..., Any], methods: list[str], *, is_open: bool = False
    ) -> Route:
        """Return a route that answers refusals with their codes, and that needs the token."""

        async def answer(call: Call) -> Response:
            began = time.perf_counter()
            try:
                if not is_open:
                    self._check_token(call)
                found = await does(call)
            except Refusal as error:
                found = _refused(error)
            except ClientDisconnect:
                found = Response(status_code=400)
            took = time.perf_counter() - began
            self.seconds.labels(path).observe(took)
            self.answers.labels(path, str(found.status_code)).inc()
            if methods == ["POST"]:
                self.times.append((time.monotonic(), took))
            return found

        return Route(path, answer, methods=methods)

    def _check_token(self, call: Call) -> None:
        if self.token is None:
            return
        given = call.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refusal(401, "send the token of the service as 'Authorization: Bearer TOKEN'")

    # Rows and labels

    async def predict(self, call: Call) -> Response:
        """Take a row, and return its prediction."""
        self._check_predicts()
        body = parsed(await _body(call))
        row, id = body.get("row"), body.get("id")
        if id is None and self.service.config.waiting:
            raise Refusal(422, "id is missing: the label of the row comes by it")
        return _json(await self._asked(self.service.checks.row(row, id)))

    def _check_predicts(self) -> None:
        if self.service.config.horizon:
            raise Refusal(404, "this run forecasts: send rows to /rows, and ask for /forecast")

    async def label(self, call: Call) -> Response:
        """Take the label of a row."""
        body = parsed(await _body(call))
        if "id" not in body or "y" not in body:
            raise Refusal(422, 'expected {"id": ..., "y": ...}')
        return _json(await self._asked(self.service.checks.label(body["id"], body["y"])), 202)

    async def rows(self, call: Call) -> Response:
        """Take lines of JSON, rows with or without labels, and stream their predictions."""
        return _Both(self._answers(call), media_type="application/x-ndjson")

    async def _answers(self, call: Call) -> AsyncIterator[bytes]:
        async for lines in _lines(call):  # lines that arrived together
            for first in range(0, len(lines), _AHEAD):
                for answer in [*map(self._ask_line, lines[first : first + _AHEAD])]:
                    yield await _line_of(answer)

    def _ask_line(self, line: bytes | Refusal) -> Any:
        """Return the future answer to a line, or its refusal."""
        try:
            if isinstance(line, Refusal):
                raise line
            return self.service.desk.ask(self.service.checks.line(parsed(line)))
        except Refusal as error:
            return error

    async def _asked(self, request: Request) -> Any:
        return await asyncio.wrap_future(self.service.desk.ask(request))

    async def _look(self, function: Callable[[Serving], Any]) -> Any:
        return await self._asked(Request(look=function))

    async def forecast(self, call: Call) -> Response:
        """Return the next values of one member or of all members."""
        config = self.service.config
        if not config.horizon:
            raise Refusal(404, "this run forecasts nothing: it was made without --horizon")
        found = await self._look(Serving.forecasts)
        member = call.query_params.get("member")
        if member is not None and config.member is not None:
            found = [one for one in found if str(one[config.member]) == member]
            if not found:
                raise Refusal(404, f"there is no member {member[:80]!r}")
        return _json(found)

    async def infer(self, call: Call) -> Response:
        """Take rows in the form of KServe's protocol, with a tensor for each column."""
        self._check_predicts()
        body = parsed(await _body(call))
        try:
            columns = {one["name"]: list(one["data"]) for one in body["inputs"]}
        except (KeyError, TypeError):
            raise Refusal(422, "inputs: expected a list of {name, shape, datatype, data}") from None
        counts = {len(values) for values in columns.values()}
        if len(counts) != 1 or not 0 < max(counts) <= _AHEAD:
            raise Refusal(422, f"inputs: expected columns of one length, 1 to {_AHEAD}")
        (count,) = counts
        id = checked_id(body.get("id") or uuid.uuid4().hex)
        ids = [id] if count == 1 else [f"{id[:200]}-{i}" for i in range(count)]
        rows = [{name: values[i] for name, values in columns.items()} for i in range(count)]
        requests = [self.service.checks.row(row, one) for row, one in zip(rows, ids, strict=True)]
        answers = [self.service.desk.ask(one) for one in requests]
        found = [(await asyncio.wrap_future(one)).get("y") for one in answers]
        kind = "BYTES" if self.service.plan.classes else "FP64"
        output = {"name": str(self.service.config.target), "datatype": kind, "shape": [count]}
        outputs = [output | {"data": found}]
        return _json({"model_name": self.name, "id": id, "outputs": outputs})

    # Routes about the service

    async def live(self, call: Call) -> Response:
        """Return that the service is running."""
        return _json({"live": True})

    async def ready(self, call: Call) -> Response:
        """Return whether requests are answered."""
        try:
            await asyncio.wait_for(self._look(lambda service: True), 5)
        except TimeoutError:
            raise Refusal(503, "the service is busy") from None
        return _json({"ready": True})

    async def state(self, call: Call) -> Response:
        """Return the values that the page shows."""
        found = await self._look(Serving.look)
        now = time.monotonic()
        recent = [took for at, took in self.times if now - at < 60]
        found["per_second"] = round(len(recent) / 60, 2)
        found["p99_ms"] = round(1000 * sorted(recent)[int(0.99 * len(recent))], 2) if recent else 0
        return _json(found | {"name": self.name, "target": self.service.config.target})

    async def metrics(self, call: Call) -> Response:
        """Return the metrics of this service in the format of Prometheus."""
        found = await self._look(Serving.look)
        values = {"rows": found["rows"], "waiting": found["waiting"]}
        values["checkpoint_age_seconds"] = found["checkpoint_age"]
        # Refused labels are answered with a code, and the journal does not contain them.
        values["rows_dropped"] = found["counts"].get("rows dropped", 0)
        for one in found["records"][-1:]:
            numbers = {k: v for k, v in one.items() if isinstance(v, int | float)}
            values |= {k: v for k, v in numbers.items() if k not in ("time", "row")}
        self.values = values
        exposed = prometheus.generate_latest(self.registry)
        return Response(exposed, media_type=prometheus.CONTENT_TYPE_LATEST)

    async def openapi(self, call: Call) -> Response:
        """Return the description of the routes, with the columns of the run."""
        return _json(description(self.service.config, self.service.intake, self.name))

    async def page(self, call: Call) -> Response:
        """Return the page of the service."""
        return HTMLResponse(_PAGE)


class _Both(StreamingResponse):
    """A response that is sent while the request body still arrives."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        # Starlette would wait for the client to disconnect, and read parts of the body.
        await self.stream_response(send)


def start(app: App, host: str, port: int) -> tuple[int, Callable[[], None]]:
    """Serve in another thread; return the port after it is bound, and a function that stops it.

    Raises:
        OSError: the port cannot be used.
    """
    config = uvicorn.Config(
        app.routes(),
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=5,
    )
    try:
        server, socket = uvicorn.Server(config), config.bind_socket()
    except SystemExit:  # uvicorn has said why
        raise OSError(f"port={port} of host={host} cannot be used; choose another one") from None
    socket.listen(_CONNECTIONS)  # clients wait for the thread to start, instead of being refused
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket]}, daemon=True)
    thread.start()

    def end() -> None:
        server.should_exit = True
        thread.join(10)

    return socket.getsockname()[1], end


async def _body(call: Call) -> bytes:
    """Return the body of a request.

    Raises:
        Refusal: the body is too large, or arrives too slowly.
    """
    found = b""
    try:
        async with asyncio.timeout(_PATIENCE):
            async for part in call.stream():
                found += part
                if len(found) > LARGEST:
                    raise Refusal(413, f"a body of more than {LARGEST} bytes; send less at once")
    except TimeoutError:
        raise Refusal(408, f"the body did not come within {_PATIENCE:g} seconds") from None
    return found


async def _lines(call: Call) -> AsyncIterator[list[bytes | Refusal]]:
    """Yield the lines in each part of a body. A line that is too long ends the body."""
    rest = b""
    async for part in call.stream():
        *whole, rest = (rest + part).split(b"\n")
        yield [line for line in whole if line.strip()]
        if len(rest) > LARGEST:
            yield [Refusal(413, f"a line of more than {LARGEST} bytes")]
            return
    yield [rest] * bool(rest.strip())


async def _line_of(answer: Any) -> bytes:
    if isinstance(answer, Refusal):
        error = answer
    else:
        try:
            return _text(await asyncio.wrap_future(answer)) + b"\n"
        except Refusal as refusal:
            error = refusal
    return _text({"code": error.code, "error": error.reason}) + b"\n"


def _json(value: Any, code: int = 200) -> Response:
    return Response(_text(value), code, media_type="application/json")


def _text(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, default=str).encode()
    except ValueError:  # a number that JSON does not have is missing
        return json.dumps(_finite(value), default=str).encode()


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _refused(error: Refusal) -> Response:
    headers = {"Retry-After": "1"} if error.code == 503 else {}
    if error.code == 401:
        headers = {"WWW-Authenticate": "Bearer"}
    return JSONResponse({"error": error.reason}, error.code, headers=headers)
