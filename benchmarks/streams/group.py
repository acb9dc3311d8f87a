"""A consumer group on the broker of the tests: kills, rows a second, cost by parts and members.

    python -m benchmarks.streams.group [--kinds kills rows parts members] [--kills 100] [--seed 0]

*Kills* ends a random process by `kill -9` at a random moment, 100 times, and starts another one:
with three processes, then two, then four, on eight partitions of one topic. *free* processes have
no place of their own, so others take their partitions over; a *kept* one starts again in its place.
In the end one process reads the same topic: all predictions, and the state of each partition, must
be equal bit for bit. *Rows* are learned by one or two processes, after all programs are compiled;
broker and reader are on the same cores. *Parts* are all of one process, begun and then restored.
*Members* is one process without a broker.
"""

import dataclasses
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from benchmarks import ledger
from benchmarks.streams.followed import write
from foretrace._runs import follow as course
from foretrace._runs.metrics import read_metrics
from foretrace.stream import ModelConfig, StreamConfig, run

sys.path.append(str(ledger.ROOT / "tests" / "serve"))
from groups import IDS, LEAVES, RETURNS, Judge, Worker, broker, make, rows, send, until

PARTS = 8
STOPPED = (130, -15)
"""Exit codes after SIGTERM: with all saved, or before anything was begun."""

QUICK = "\nconsumer.session.timeout.ms = 3000\nconsumer.heartbeat.interval.ms = 500"
PLACES = {"free": LEAVES + QUICK, "kept": RETURNS}
SIZES = {"default": "", "fast": "--size fast", "fast, one at a time": "--size fast --id id"}
MEMBERS = (10, 100, 1_000, 10_000, 100_000)


def cells(
    kinds=("kills", "rows", "parts", "members"),
    places=PLACES,
    kills=100,
    seed=0,
    sizes=SIZES,
    workers=(1, 2),
    parts=(8, 64),
    members=MEMBERS,
    count=20_000,
):
    """Return the cells.

    Args:
        places: whether a process that is killed keeps its place.
        kills: times `kill -9`.
        seed: what chooses processes and moments.
        sizes: options of the model.
        workers: numbers of processes.
        parts: numbers of partitions.
        members: numbers of members.
        count: number of rows.
    """
    of_kind = {
        "kills": {"place": places, "kills": kills, "seed": seed},
        "rows": {"size": sizes, "workers": workers, "count": count},
        "parts": {"size": sizes, "parts": parts},
        "members": {"size": sizes, "members": members, "count": count},
    }
    return [cell for kind in kinds for cell in ledger.grid(kind=kind, **of_kind[kind])]


def measure(cell):
    """Return counts, or times."""
    kinds = {"kills": killed, "rows": learned, "parts": of_parts, "members": of_members}
    with tempfile.TemporaryDirectory() as folder:
        return kinds[cell["kind"]](Path(folder), **{k: v for k, v in cell.items() if k != "kind"})


class Crowd:
    """Processes of a group whose number is kept."""

    def __init__(self, address, run, properties):
        self.args, self.properties = (address, run, *IDS), properties
        self.many, self.ended = [], []

    def reach(self, size):
        """Stop or start processes until there are so many."""
        while len(self.many) > size:
            assert self.many.pop(0).end() in STOPPED
        while len(self.many) < size:
            self.many.append(Worker(*self.args, properties=self.properties))

    def wait(self, judge, count):
        """Wait for predictions; replace and report a process that ended by itself."""

        def there():
            for one in [one for one in self.many if one.process.poll() is not None]:
                self.many.remove(one)
                self.ended.append(one.said.splitlines()[-1])
                self.reach(len(self.many) + 1)
            return judge.read() >= count

        until(there)


def killed(folder, *, place, kills, seed):
    """Return how many predictions there are, and whether they and the states are equal."""
    draw, sent, asked = random.Random(seed), 0, []
    with broker() as address:
        make(address, PARTS, "rows", "many", "one")
        judge, crowd = Judge(address, "many"), Crowd(address, folder / "many", PLACES[place])
        for number in range(kills):
            crowd.reach(3 if place == "kept" else (3, 2, 4)[3 * number // kills])
            send(address, rows(400, PARTS, sent))
            sent += 400
            if number % 2:  # in the middle of learning, after some answers
                crowd.wait(judge, min(judge.read() + draw.randint(1, 200), sent))
            else:  # perhaps while it starts, or gets its partitions
                time.sleep(draw.uniform(0, 6))
            asked.append(judge.read())
            victim = crowd.many.pop(draw.randrange(len(crowd.many)))
            victim.kill()
            ledger.say(f"kill {number + 1}: {asked[-1]} of {sent} rows answered")
        crowd.reach(len(crowd.many) + 1)
        crowd.wait(judge, sent)
        crowd.reach(0)
        one = Crowd(address, folder / "one", LEAVES)
        one.reach(1)
        alone = Judge(address, "one")
        one.wait(alone, sent)
        one.reach(0)
        judge.read()
    names = [f"part-{part}/checkpoint.safetensors" for part in range(PARTS)]
    states = [[load_file(folder / run / name) for name in names] for run in ("many", "one")]
    return {
        "rows": sent,
        "answered": len(judge.found),
        "answered at the kills": asked,
        "repeated": judge.repeated,  # each was equal, else the reader had stopped
        "equal": judge.found == alone.found and not alone.repeated,
        "states equal": all(
            np.array_equal(a[name], b[name], equal_nan=True)
            for a, b in zip(*states, strict=True)
            for name in a
            if not name.startswith("__")
        ),
        "ended by themselves": crowd.ended + one.ended,
    }


def learned(folder, *, size, workers, count):
    """Return rows a second of CPU and of wall time."""
    words = SIZES[size].split()
    with broker() as address:
        make(address, PARTS, "rows", "many")
        many = [
            Worker(address, folder / "many", *words, experts=None, properties=LEAVES)
            for _ in range(workers)
        ]
        until(lambda: sum(PARTS // workers == here(one) for one in many) == workers)
        judge, some = Judge(address, "many"), labelled(count + 40 * PARTS)
        send(address, some[: 40 * PARTS])  # compiles all programs
        judge.wait(40 * PARTS, *many)
        before, began = sum(map(spent, many)), time.monotonic()
        send(address, some[40 * PARTS :])
        judge.wait(len(some), *many)
        wall, cpu = time.monotonic() - began, sum(map(spent, many)) - before
        exits = [one.end() for one in many]
    return {
        "rows_per_cpu_second": round(count / cpu),
        "rows_per_second": round(count / wall),
        "cpu_seconds": round(cpu, 1),
        "exits": exits,
    }


def here(worker):
    """Return the number of partitions that a process said last it has."""
    *_, said = "", *(line for line in worker.said.splitlines() if "are here" in line)
    return said.count(",") + 1 if said else 0


def spent(worker):
    """Return the CPU seconds of a process so far."""
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK")


def labelled(count):
    """Return rows with their labels."""
    found = []
    for i in range(count):
        who, a = i % (2 * PARTS), (i * 37) % 11
        row = {"id": f"r{i}", "who": f"m{who}", "a": a, "c": "uv"[i % 2], "y": 0.5 * a + i % 3}
        found.append((who % PARTS, row))
    return found


def of_parts(folder, *, size, parts):
    """Return CPU time until all partitions answer, begun and then restored, and memory."""
    row, found = {"id": "r", "who": "m", "a": 1, "c": "u", "y": 2.5}, []
    with broker() as address:
        make(address, parts, "rows", "many")
        judge, options = Judge(address, "many"), SIZES[size].split()
        for turn in (1, 2):
            one = Worker(address, folder / "many", *options, experts=None, properties=LEAVES)
            send(address, [(part, row) for part in range(parts)])
            judge.wait(turn * parts, one)
            status = Path(f"/proc/{one.process.pid}/status").read_text()
            found += [spent(one), int(re.search(r"VmRSS:\s+(\d+)", status)[1]) // 1024]
            assert one.end() in STOPPED
    names = "begin_cpu_seconds", "begun_mib", "restore_cpu_seconds", "restored_mib"
    return dict(zip(names, found, strict=True))


def of_members(folder, *, size, members, count):
    """Return CPU time of a row, of a checkpoint and of reading it; memory, size of the checkpoint.

    Memory is the process's, so each cell needs a process of its own.
    """
    draw, saves = np.random.default_rng(0), []
    x = draw.normal(size=(2, count)).round(4)
    who, y = draw.integers(members, size=count), (2 * x[0] - x[1]).round(4)
    config = StreamConfig(
        write(folder / "rows.csv", who=who, a=x[0], b=x[1], y=y),
        target="y",
        member="who",
        members=members,
        task="regression",
        log_every=count // 4,
        checkpoint_every=10 * count,
        model=ModelConfig(size="fast") if size == "fast" else ModelConfig(),
    )

    def timed(does, *args, **options):
        began = time.process_time()
        return does(*args, **options), time.process_time() - began

    def save(*args, **options):
        saves.append(timed(saved, *args, **options)[1])

    warm = dataclasses.replace(config, log_every=200)  # a line of the record is a program
    run(warm, folder / "warm", rows=400)
    saved, course.save = course.save, save
    result, seconds = timed(run, config, folder / "run")
    _, read_again = timed(run, config, folder / "run", resume=True)
    lines = read_metrics(result.run.metrics)
    return {
        "cpu_us_per_row": round(1e6 * (seconds - sum(saves)) / count, 1),
        "resident_mib": max(line.get("resident_mib", 0) for line in lines),
        "checkpoint_mib": round(result.run.checkpoint.stat().st_size / 2**20, 2),
        "save_cpu_seconds": [round(one, 2) for one in saves],
        "read_cpu_seconds": round(read_again, 2),
        "mae": lines[-1]["mae"],
    }


if __name__ == "__main__":
    ledger.run(__doc__, "group", cells, measure)
