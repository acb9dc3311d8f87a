"""The mixture of experts alone, without a network, on the real streams: scores of it and of each expert, time per row.

    FORETRACE_DATA=... python benchmarks/experts.py [--rows 5000] [--streams elec2 ecg] [--chunk 50] [--without wide]

Inputs, label delays and scores are those of `benchmarks/streams.py`. The time is the CPU time of the compiled program
in chunks, without reading and encoding. `--save` writes records.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import ledger
import numpy as np
import rows

FILE = ledger.RECORDS / "experts.jsonl"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000, help="first rows of each stream; 0 for all")
    parser.add_argument("--streams", nargs="+", choices=list(rows.STREAMS), default=list(rows.STREAMS))
    parser.add_argument("--chunk", type=int, default=50, help="rows in one call of the program")
    parser.add_argument("--without", nargs="+", default=[], help="groups of experts to leave out")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams")
    parser.add_argument("--save", action="store_true", help=f"write records to {FILE.name}")
    asked = parser.parse_args()
    for name in asked.streams:
        cell = {"stream": name, "rows": asked.rows, "chunk": asked.chunk, "without": asked.without}
        found = measure(cell, asked.work)
        score = "accuracy" if rows.STREAMS[name].classes else "mae"
        print(f"{name}: {score} {found[score]:.4f}, {found['cpu_us_per_row']:.0f} us a row, {found['seconds']:.0f} s")
        for expert, value in sorted(found["experts"].items(), key=lambda item: item[1], reverse=score == "accuracy"):
            print(f"    {expert:22s} {value:10.4f}   weight {found['weights'][expert]:.3f}", flush=True)
        if asked.save:
            ledger.append(FILE, cell, found)


def measure(cell, work):
    """Return the scores of a stream."""
    from foretrace._experts.mixture import EXPERTS, mixture

    shape, blocks = encoded(cell["stream"], work, cell["rows"], cell["chunk"])
    model = mixture(shape, tuple(name for name in EXPERTS if name not in cell["without"]))
    state, steps, seconds, began = model.init(), [], 0.0, time.monotonic()
    for i, block in enumerate(blocks):
        start = time.process_time()
        state, step = model.step(state, block.rows)
        steps.append([np.asarray(leaf) for leaf in (step.resolved, step.errors)])
        seconds += (time.process_time() - start) * (i >= 2)
    resolved, errors = (np.concatenate(parts) for parts in zip(*steps, strict=True))
    came = [row for block in blocks for row in block.resolved]
    known = np.array([row is not None and None not in row.targets for row in came])
    resolved, errors = resolved[known], errors[known]
    came = [row for row, there in zip(came, known, strict=True) if there]
    label = np.array([row.targets for row in came])
    per_row = 1e6 * seconds / max(cell["chunk"] * (len(blocks) - 2), 1)
    found = {"cpu_us_per_row": per_row, "seconds": time.monotonic() - began, "weights": model.weights(state)}
    if shape.classes:
        classes = np.array([row.context.num_classes for row in came])
        best = np.where(np.arange(shape.outputs) < classes[:, None], resolved, -np.inf).argmax(1)
        found["accuracy"] = float(((best == label[:, 0]) & (classes > 0)).mean())
        picked = np.take_along_axis(resolved, label.astype(int), 1)
        found["log_loss"] = float(-picked.mean())
        found["experts"] = dict(zip(model.names, (1 - errors.mean(0)).tolist(), strict=True))
    else:
        found["mae"] = float(np.abs(resolved - label).mean())
        found["experts"] = dict(zip(model.names, errors.mean(0).tolist(), strict=True))
    return found | {"scored": int(known.sum()), "left_out": model.left_out}


class Block(NamedTuple):
    """Rows of one call, packed, and the rows whose labels came with them, None where there is none."""

    rows: np.ndarray
    resolved: list


def encoded(name, work, count, chunk):
    """Return the shape of a stream, and its rows in blocks, encoded as `foretrace stream` does."""
    from itertools import islice

    from foretrace._experts.rows import pack
    from foretrace._experts.shape import Shape
    from foretrace.stream._config import StreamConfig
    from foretrace.stream._plan import build, make_plan, open_source

    stream, path = rows.STREAMS[name], rows.prepare(name, work)
    columns = {"time": stream.clock, "categorical": stream.categories, "delay": stream.delay}
    text = {"target": None} if path.suffix == ".txt" else {"target": "target", "previous": stream.previous, **columns}
    task = {} if path.suffix == ".txt" else {"task": "classification" if stream.classes else "regression"}
    config = StreamConfig(str(path), **text, **task)
    source = open_source(config)
    taken = [row for row, _ in islice(source.rows(), count or None)]
    labels = build(config, make_plan(config, source, taken[: config.look_ahead])).labels
    encoder = labels.encoder
    lagged = tuple(at for kind, at in encoder.columns.values() if kind == "numeric")
    outputs = labels.target.output_size
    shape = Shape(encoder.width, lagged, outputs, stream.classes, labels.total_delay, 1, stream.previous)
    target = "target" if "target" in taken[0] else next(iter(taken[0]))
    blocks = []
    for i in range(0, len(taken) // chunk * chunk, chunk):
        xs, contexts, resolved = [], [], []
        for row in taken[i : i + chunk]:
            xs.append(labels.push(row, row.get(target))[: encoder.width])
            contexts.append(labels.newest)
            resolved += labels.pop_resolved(1) or [None]
        blocks.append(Block(pack(shape, np.array(xs).reshape(chunk, -1), contexts, resolved), resolved))
    return shape, blocks


if __name__ == "__main__":
    main()
