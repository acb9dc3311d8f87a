"""Real streams, progressive validation: foretrace's rules and river on the same rows.

    FORETRACE_DATA=... python -m benchmarks.streams.real [--rows 20000] [--streams elec2 ecg]
        [--only online]
    FORETRACE_DATA=... python -m benchmarks.streams.real --long --rows 50000   # long dependencies

River's models are run with the row alone and with those before as further features (8, of the ECG
72, of a text 8 characters), and get, where the network gets it, the last known label. A cell of a
peer ends after --limit CPU seconds and says after how many rows. CapyMOA's learners are run where
it is installed, with the row and the last known label. deep-river needs an environment of its own:
`deep_river.py`. Long streams are learned in chunks of 32 rows. Nothing is chosen by stream.
"""

import importlib.util
import tempfile
from functools import partial
from pathlib import Path

from benchmarks import ledger
from benchmarks.streams import peers, rows
from foretrace.stream._model_config import AUTO

FILE, LONG_FILE = ledger.RECORDS / "streams.jsonl", ledger.RECORDS / "long_streams.jsonl"
EXPERTS = tuple(name for name in AUTO if name not in ("events", "memory", "distant"))
LEAST_SQUARES = ("row", "short", "lags", "wide", "waves", "steps")
MIXTURES = {
    "mixture of experts (default)": {"size": "auto"},
    "mixture of experts and network": {"size": "auto", "experts": (*AUTO, "network")},
    "learned memory and the row": {"size": "auto", "experts": ("row", "memory")},
}
WAYS = MIXTURES | {
    "mixture without least squares": {
        "size": "auto",
        "experts": tuple(e for e in EXPERTS if e not in LEAST_SQUARES),
    },
    "mixture without rows before": {
        "size": "auto",
        "experts": tuple(e for e in EXPERTS if e not in ("short", "lags", "wide")),
    },
    "online": {"rule": "online"},
    "spatial": {"rule": "spatial"},
    "truncated": {"rule": "truncated"},
    "exact (credit depth 2)": {"rule": "online(depth=2)"},
    "exact (credit depth 2), chunks of 32": {"rule": "hybrid(depth=2)", "chunk": 32},
    "hybrid, chunks of 32": {"rule": "hybrid", "chunk": 32},
    "BPTT, chunks of 32 (equal memory)": {"rule": "bptt", "chunk": 32},
}
LONG_WAYS = {
    name: {"chunk": 32, **way}
    for name, way in (
        MIXTURES | {f"network alone, {size}": {"size": size} for size in ("small", "medium")}
    ).items()
}
LAGS = {"ecg": 72}
WARM = 300


def main():
    parser = ledger.parser(__doc__)
    parser.add_argument(
        "--rows", type=int, default=20_000, help="first rows of each stream; 0 for all"
    )
    parser.add_argument(
        "--streams",
        nargs="+",
        choices=[*rows.GROUPS, *rows.ANY],
        default=["real"],
        help="streams, or groups of them",
    )
    parser.add_argument("--long", action="store_true", help="long streams, without peers")
    parser.add_argument(
        "--only", nargs="+", help="words, one of which the name of a way has to contain"
    )
    parser.add_argument(
        "--seeds",
        type=int,
        nargs="+",
        default=[0],
        help="of the default mixture and of the network",
    )
    parser.add_argument("--limit", type=float, default=600, help="CPU seconds for a cell of a peer")
    parser.add_argument(
        "--work", type=Path, default=Path(tempfile.gettempdir()) / "foretrace-streams"
    )
    asked = parser.parse_args()
    if asked.long:
        cells = [
            {"stream": s, "way": way, "rows": asked.rows}
            for s in (rows.LONG if asked.streams == ["real"] else rows.names(asked.streams))
            for way in LONG_WAYS
        ]
    else:
        cells = asked_cells(rows.names(asked.streams), asked)
    if asked.only:
        cells = [cell for cell in cells if any(word in cell["way"] for word in asked.only)]
    file, ways = (LONG_FILE, LONG_WAYS) if asked.long else (FILE, WAYS)
    return ledger.each(file, cells, lambda cell: measure(cell, asked.work, ways))


def asked_cells(names, asked):
    """Return the cells to measure: foretrace's, then the peers'."""
    ours, theirs = [], []
    for name in names:
        cell = {"stream": name, "rows": asked.rows}
        ours += [
            cell | {"way": way} | ({"seed": seed} if seed else {})
            for seed in asked.seeds
            for way in WAYS
        ]
        for way in other_models(rows.ANY[name].classes):
            theirs += [
                cell | {"way": way, "lags": lags, "limit": asked.limit}
                for lags in (0, LAGS.get(name, 8))
                if not (lags and way.startswith("CapyMOA"))
            ]
        if not rows.ANY[name].classes:
            theirs += [
                cell | {"way": way, "limit": asked.limit} for way in peers.series_models(2, 0)
            ]
    return ours + theirs


def other_models(classes):
    """Return river's models, and makers of CapyMOA's if it is installed."""
    java = importlib.util.find_spec("capymoa")
    return peers.river_models(classes) | (peers.capymoa_models(classes) if java else {})


def measure(cell, work, ways=WAYS):
    """Return the scores of a cell."""
    name, way = cell["stream"], cell["way"]
    stream, path = rows.ANY[name], rows.prepare(name, work)
    count = sum(1 for _ in rows.read(name, path, cell["rows"] or 10**9))
    if way in ways:
        return network(cell, path, count, ways[way])
    models = other_models(stream.classes) | peers.series_models(
        rows.SEASON.get(name, 24), stream.delay
    )
    found, options = list(rows.read(name, path, count)), {}
    lags, previous = cell.get("lags", 0), stream.previous and name not in rows.TEXTS
    make = models[way]
    if way.startswith("CapyMOA"):
        labels = sorted({y for _, y in found if y is not None}) if stream.classes else []
        make = partial(peers.Schema, make, peers.names_of(found, lags, previous), labels)
        options = {"size": lambda model: 0}  # Java does not say
    return peers.progressive(
        make(),
        found,
        count=count,
        classes=stream.classes,
        lags=lags,
        delay=stream.delay,
        previous=previous,
        limit=cell["limit"],
        **options,
    )


def network(cell, path, count, way):
    """Follow the stream as `foretrace stream` does, at its default size and rate."""
    import jax

    from benchmarks.streams.followed import follow

    model = {"size": "small", **way, "seed": cell.get("seed", 0)}
    steps = {"chunk": model.pop("chunk", 1), "log_every": max(count // 10, 1)}
    found = follow(model, rows=count, warm=WARM, **rows.options(cell["stream"], path), **steps)
    jax.clear_caches()
    score = "accuracy" if rows.ANY[cell["stream"]].classes else "mae"
    done = found.result.position.row
    return {
        **found.result.scores,
        "parts": [line.get(score) for line in found.lines if line["kind"] == "stream"],
        "rows": done,
        "scored": found.lines[-1]["scored"],
        "refused": found.lines[-1]["refused"],
        "cpu_us_per_row": 1e6 * found.seconds / done,
        "state_kib": found.state_kib,
    }


if __name__ == "__main__":
    main()
