"""Real streams, progressive validation: foretrace under several rules, and river, on the same rows in the same order.

    FORETRACE_DATA=... python benchmarks/streams.py [--rows 20000] [--streams elec2 ecg] [--only online]
    python benchmarks/streams.py --page      # docs/streams_compared.md and its figures, from the records alone

River's models are run with the row alone and with those before as further features (8, of the ECG 72, of a text 8
characters), and get, where the network gets it, the last known label. A cell of a peer ends after --limit CPU seconds
and says after how many rows. deep-river needs an environment of its own: `peers_deep_river.py`.
"""

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

import ledger
import peers
import rows

FILE = ledger.RECORDS / "streams.jsonl"
EXPERTS = ("baselines", "contexts", "row", "short", "lags", "wide", "waves", "neighbours", "gradient")
LEAST_SQUARES = ("row", "short", "lags", "wide", "waves")
WAYS = {
    "mixture of experts (default)": {"size": "auto"},
    "mixture of experts and network": {"size": "auto", "experts": [*EXPERTS, "events", "network"]},
    "mixture without least squares": {"size": "auto", "experts": [e for e in EXPERTS if e not in LEAST_SQUARES]},
    "mixture without rows before": {
        "size": "auto",
        "experts": [e for e in EXPERTS if e not in ("short", "lags", "wide")],
    },
    "online": {"rule": "online", "credit_depth": 0},
    "spatial": {"rule": "spatial"},
    "truncated": {"rule": "truncated"},
    "exact (credit depth 2)": {"rule": "online", "credit_depth": 2},
    "exact (credit depth 2), chunks of 32": {"rule": "hybrid", "credit_depth": 2, "chunk": 32},
    "hybrid, chunks of 32": {"rule": "hybrid", "chunk": 32},
    "BPTT, chunks of 32 (equal memory)": {"rule": "bptt", "chunk": 32},
}
LAGS = {"ecg": 72}
WARM = 300


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000, help="first rows of each stream; 0 for all")
    parser.add_argument("--streams", nargs="+", choices=list(rows.ANY), default=list(rows.STREAMS))
    parser.add_argument("--packaged", action="store_true", help="all streams that ship inside Python packages")
    parser.add_argument("--only", nargs="+", help="words, one of which the name of a way has to contain")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], help="of the default mixture and of the network")
    parser.add_argument("--limit", type=float, default=600, help="CPU seconds for a cell of a peer")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams")
    parser.add_argument("--page", action="store_true", help="write the page and its figures, measure nothing")
    asked = parser.parse_args()
    if asked.page:
        import page

        return page.write()
    cells = []
    for name in rows.PACKAGED if asked.packaged else asked.streams:
        cell = {"stream": name, "rows": asked.rows}
        for seed in asked.seeds:
            cells += [cell | {"way": way} | ({"seed": seed} if seed else {}) for way in WAYS]
        for way in peers.river_models(rows.ANY[name].classes):
            cells += [cell | {"way": way, "lags": lags, "limit": asked.limit} for lags in (0, LAGS.get(name, 8))]
        if not rows.ANY[name].classes:
            cells += [cell | {"way": way, "limit": asked.limit} for way in peers.series_models(2, 0)]
    cells.sort(key=lambda cell: cell["way"] not in WAYS)
    if asked.only:
        cells = [cell for cell in cells if any(word in cell["way"] for word in asked.only)]
    return ledger.each(FILE, cells, lambda cell: measure(cell, asked.work))


def measure(cell, work):
    """Return the scores of a cell."""
    name = cell["stream"]
    stream, path = rows.ANY[name], rows.prepare(name, work)
    count = sum(1 for _ in rows.read(name, path, cell["rows"] or 10**9))
    if cell["way"] in WAYS:
        return network(cell, stream, path, count)
    models = peers.river_models(stream.classes) | peers.series_models(rows.SEASON.get(name, 24), stream.delay)
    return peers.progressive(
        models[cell["way"]](),
        rows.read(name, path, count),
        count=count,
        classes=stream.classes,
        lags=cell.get("lags", 0),
        delay=stream.delay,
        previous=stream.previous and name not in rows.TEXTS,
        limit=cell["limit"],
    )


def network(cell, stream, path, count, ways=WAYS):
    """Follow the stream as `foretrace stream` does, at its default size and rate; a short run before compiles."""
    import json

    import jax

    from foretrace.stream._config import StreamConfig
    from foretrace.stream._model_config import ModelConfig
    from foretrace.stream._run import follow

    columns = {"time": stream.clock, "categorical": stream.categories, "delay": stream.delay}
    text = {"target": None} if path.suffix == ".txt" else {"target": "target", "previous": stream.previous, **columns}
    task = {} if path.suffix == ".txt" else {"task": "classification" if stream.classes else "regression"}
    options = dict(ways[cell["way"]]) | {"seed": cell.get("seed", 0)}
    steps = {"chunk": options.pop("chunk", 1), "log_every": max(count // 10, 1)}
    config = StreamConfig(str(path), **text, **task, **steps, model=ModelConfig(**({"size": "small"} | options)))
    with tempfile.TemporaryDirectory() as folder:
        warm = dataclasses.replace(config, log_every=WARM // 2)  # a line of metrics has a program of its own
        follow(warm, f"{folder}/warm", rows=WARM, show_progress=False)
        began = time.process_time()
        result = follow(config, f"{folder}/run", rows=count, show_progress=False)
        seconds = time.process_time() - began
        if result.stopped:
            raise SystemExit("stopped: this cell is not recorded")
        lines = [json.loads(line) for line in result.run.metrics.read_text().splitlines()]
        kept = result.run.checkpoint.stat().st_size
    jax.clear_caches()
    score = "accuracy" if stream.classes else "mae"
    return {
        **result.scores,
        "parts": [line.get(score) for line in lines if line["kind"] == "stream"],
        "rows": result.position.row,
        "scored": lines[-1]["scored"],
        "refused": lines[-1]["refused"],
        "cpu_us_per_row": 1e6 * seconds / result.position.row,
        "state_kib": kept / 2**10,
    }


if __name__ == "__main__":
    main()
