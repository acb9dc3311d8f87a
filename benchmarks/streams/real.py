"""Real streams, progressive validation: foretrace's rules and other libraries on the same rows.

    FORETRACE_DATA=... python -m benchmarks.streams.real [--rows 20000] [--streams elec2 ecg]
        [--only online]

River's models are run with the row alone and with those before as further features (8, of the ECG
72, of a text 8 characters), and get, where the network gets it, the last known label. CapyMOA's
learners, with the row and the last known label, and deep-river's (`deep_river.py`) are run where
they are installed. Nothing is chosen by stream.
"""

from benchmarks import ledger
from benchmarks.streams import peers
from benchmarks.streams.followed import follow
from benchmarks.streams.rows import ANY, TEXTS, names, options, read
from foretrace.stream.model.model_config import AUTO

EXPERTS = tuple(name for name in AUTO if name not in ("events", "memory", "distant"))
LEAST_SQUARES = ("lags", "waves", "steps")
MIXTURES = {
    "mixture of experts (default)": {"size": "auto"},
    "mixture, fast": {"size": "fast"},
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
        "experts": tuple(e for e in EXPERTS if e != "lags"),
    },
    "online": {"rule": "online"},
    "spatial": {"rule": "spatial"},
    "truncated": {"rule": "truncated"},
    "exact (credit depth 2)": {"rule": "online(depth=2)"},
}
LAGS = {"ecg": 72}
WARM = 300


def cells(streams=("real",), rows=20_000, limit=600):
    """Return the cells: foretrace's, then the peers'.

    Args:
        streams: names of streams, or of groups of them: real, packaged, unseen, long, tickets.
        rows: first rows of each stream; 0 for all.
        limit: CPU seconds for a cell of a peer.
    """
    ours, theirs = [], []
    for name in names(streams):
        here, classes = {"stream": name, "rows": rows}, ANY[name].classes
        ours += ledger.grid(**here, way=WAYS)
        lags = [0, LAGS.get(name, 8)]
        theirs += ledger.grid(**here, way=peers.river_models(classes), lags=lags, limit=limit)
        theirs += ledger.grid(**here, way=peers.capymoa_models(classes), lags=0, limit=limit)
        for models in (peers.series_models, peers.deep_river_models):
            theirs += ledger.grid(**here, way=models(classes), limit=limit)
    return ours + theirs


def measure(cell):
    """Return the scores of a cell."""
    name, way = cell["stream"], cell["way"]
    stream, count = ANY[name], sum(1 for _ in read(name, cell["rows"] or 10**9))
    if way in WAYS:
        return network(cell, count, WAYS[way])
    data = peers.Data(
        list(read(name, count)),
        stream.classes,
        count,
        cell.get("lags", 0),
        stream.delay,
        stream.previous and name not in TEXTS,
        stream.season,
    )
    return peers.progressive(peers.models(stream.classes)[way](data), data, cell["limit"])


def network(cell, count, way):
    """Follow the stream as `foretrace stream` does, at its default size and rate."""
    import jax

    steps = {"log_every": max(count // 10, 1)}
    given = options(cell["stream"]) | steps
    found = follow({"size": "small", **way}, rows=count, warm=WARM, **given)
    jax.clear_caches()
    score = "accuracy" if ANY[cell["stream"]].classes else "mae"
    scored = found.scored(score, found.result.position.row)
    return {**found.result.scores, **scored, "refused": found.lines[-1]["refused"]}


if __name__ == "__main__":
    ledger.run(__doc__, peers.record_of("streams"), cells, measure)
