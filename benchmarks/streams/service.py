"""A service under load: times of requests, kills, members.

    python -m benchmarks.streams.service [--kinds load kills machines] [--rates 400 800]
        [--seconds 600] [--kills 100] [--options ...]

*Load* asks for half as many rows as `--rates` requests a second, and gives each its label some rows
later. Requests go out by the clock, whether or not earlier ones are answered, so a pause of the
service counts for every request that falls into it. *Kills* ends the service by `kill -9` at random
moments under load, and in the end compares journal and state: each acknowledged event once, and the
state that one process learns from the journal, bit for bit. *Machines* sends rows and labels of 500
members as fast as they are answered. The client is another process on the same cores.
"""

import asyncio
import contextlib
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import foretrace as ft
from benchmarks import ledger
from foretrace._runs.directory import read_config_as
from foretrace.stream.runs.config import StreamConfig

COLUMNS = 6


def cells(
    kinds=("load", "kills", "machines"), rates=(400, 800), seconds=600, kills=100, options=("",)
):
    """Return the cells.

    rates: requests a second, of which half are rows and half labels
    seconds: how long the load lasts
    kills: times `kill -9`
    options: further options of the service, one text each
    """
    found = []
    for kind in kinds:
        more = {"load": {"rate": rates, "seconds": seconds}, "kills": {"kills": kills}}
        found += ledger.grid(kind=kind, options=options, **more.get(kind, {"seconds": 60}))
    return found


def measure(cell):
    """Return times in milliseconds, or counts."""
    with tempfile.TemporaryDirectory() as folder:
        does = {"load": load, "kills": killed, "machines": machines}[cell["kind"]]
        return does(Path(folder), **{k: v for k, v in cell.items() if k != "kind"})


def row(draw):
    """Return a row and its label."""
    x = [round(draw.gauss(0, 1), 4) for _ in range(COLUMNS)]
    values = {f"x{i}": one for i, one in enumerate(x)}
    return values, round(2 * x[0] - x[1] + 0.1 * draw.gauss(0, 1), 4)


class Service:
    """A service in a process of its own."""

    def __init__(self, folder, options, *, new=True):
        command = [sys.executable, "-m", "foretrace", "serve", str(folder / "run"), "--port", "0"]
        if new:
            draw, like = random.Random(1), folder / "like.jsonl"
            rows = [
                {**values, "m": f"m{i % 3}", "y": y}
                for i in range(300)
                for values, y in [row(draw)]
            ]
            like.write_text("".join(json.dumps(one) + "\n" for one in rows))
            command += ["--like", str(like), "--target", "y", *options.split()]
        self.run = folder / "run"
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        for line in self.process.stdout:
            if found := re.search(r"at http://([^:]+):(\d+)", line):
                self.address = found[1], int(found[2])
                break
        threading.Thread(target=self.process.stdout.read, daemon=True).start()

    def rss(self):
        """Return the memory of the process in MiB."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    def end(self):
        """Ask it to stop, and wait."""
        self.process.terminate()
        return self.process.wait()


class Connections:
    """Some connections, each with one request at a time."""

    def __init__(self, address):
        self.address, self.idle = address, []

    async def post(self, path, body):
        """Return the code and the answer of a request."""
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {len(data)}\r\n\r\n".encode()
        while True:
            is_old = bool(self.idle)
            reader, writer = (
                self.idle.pop() if is_old else await asyncio.open_connection(*self.address)
            )
            writer.write(head + data)
            try:
                text = (await reader.readuntil(b"\r\n\r\n")).decode()
                break
            except (OSError, asyncio.IncompleteReadError):
                if not is_old:  # else the service closed it after half a minute without a request
                    raise
        size = int(re.search(r"content-length: (\d+)", text, re.IGNORECASE)[1])
        answer = await reader.readexactly(size)
        self.idle.append((reader, writer))
        return int(text.split()[1]), answer


def load(folder, *, rate, seconds, options):
    """Return quantiles of the times of rows and labels, and memory at the begin and the end."""
    service = Service(folder, options)
    times, codes, draw = {"predict": [], "label": []}, {}, random.Random(0)

    async def ask(kind, body, due):
        code, _ = await connections.post(f"/{kind}", body)
        times[kind].append(time.perf_counter() - due)
        codes[code] = codes.get(code, 0) + 1

    async def all_of_it():
        waiting, tasks, number = [], set(), 0
        start = time.perf_counter()
        while (due := start + number / rate) < start + seconds:
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            if number % 2 and len(waiting) > 40:
                id, y = waiting.pop(draw.randrange(len(waiting) - 20))
                work = ask("label", {"id": id, "y": y}, due)
            else:
                values, y = row(draw)
                waiting.append((f"r{number}", y))
                work = ask("predict", {"id": f"r{number}", "row": values}, due)
            tasks.add(task := asyncio.create_task(work))
            task.add_done_callback(tasks.discard)
            number += 1
        await asyncio.gather(*tasks)

    connections = Connections(service.address)
    begin = service.rss()
    asyncio.run(all_of_it())
    found = {"codes": {str(code): n for code, n in codes.items()}}
    for kind, some in times.items():
        quantiles = 1000 * np.quantile(some, [0.5, 0.99, 0.999, 1])
        names = (f"{kind} {name}" for name in ("p50", "p99", "p99.9", "max"))
        found |= dict(zip(names, quantiles.round(2).tolist(), strict=True))
    found |= {"MiB": [round(begin), round(service.rss())]}
    return found | {"exit": service.end()}


def killed(folder, *, kills, options):
    """Return how many events were acknowledged, lost or learned twice; whether the states agree."""
    draw, acknowledged, number = random.Random(0), [], 0
    for attempt in range(kills + 1):
        service = Service(folder, options, new=not attempt)
        connections, until = Connections(service.address), time.monotonic() + draw.uniform(0.05, 2)

        async def ask(endless, until, connections=connections):
            nonlocal number
            waiting = []
            while endless or time.monotonic() < until:
                if len(waiting) > 5:
                    id, y = waiting.pop(draw.randrange(len(waiting)))
                    code, _ = await connections.post("/label", {"id": id, "y": y})
                    event = {"id": id, "y": y}
                else:
                    number += 1
                    values, y = row(draw)
                    id = f"r{number}"
                    code, _ = await connections.post("/predict", {"id": id, "row": values})
                    event = {"id": id, **values}
                    waiting.append((id, y))
                if code < 300:
                    acknowledged.append(json.dumps(event))

        timer = threading.Timer(max(until - time.monotonic(), 0), service.process.kill)
        if attempt < kills:
            timer.start()
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            asyncio.run(ask(attempt < kills, until))
        if attempt < kills:
            service.process.wait()
        else:
            service.end()
    lines = (folder / "run" / "events.jsonl").read_text().splitlines()
    written = [json.dumps(json.loads(line)) for line in lines]
    times = Counter(written)
    ft.stream.run(read_config_as(folder / "run", StreamConfig), folder / "whole")
    states = [load_file(folder / name / "checkpoint.safetensors") for name in ("run", "whole")]
    same = [name for name in states[0] if not name.startswith("__")]
    return {
        "acknowledged": len(acknowledged),
        "lost": sum(one not in times for one in acknowledged),
        "twice": sum(n > 1 for n in times.values()),
        "events": len(written),
        "equal": all(
            np.array_equal(states[0][name], states[1][name], equal_nan=True) for name in same
        ),
    }


def machines(folder, *, seconds, options):
    """Return rows a second of 500 members, sent in lines, half of them with labels later."""
    service = Service(folder, f"--member m --members 500 {options}")
    draw, count = random.Random(0), 0
    import httpx

    with httpx.Client(base_url="http://{}:{}".format(*service.address), timeout=600) as client:
        start = time.perf_counter()
        while time.perf_counter() < start + seconds:
            lines = []
            for i in range(count, count + 250):
                values, y = row(draw)
                lines += [{"id": f"r{i}", "m": f"m{i % 500}", **values}]
                lines += [{"id": f"r{i}", "y": y}]
            answer = client.post("/rows", content="".join(json.dumps(one) + "\n" for one in lines))
            assert answer.text.count("\n") == 500 and "error" not in answer.text
            count += 250
        took = time.perf_counter() - start
    return {
        "rows_per_second": round(count / took, 1),
        "rows": count,
        "MiB": round(service.rss()),
        "exit": service.end(),
    }


if __name__ == "__main__":
    ledger.run(__doc__, "service", cells, measure)
