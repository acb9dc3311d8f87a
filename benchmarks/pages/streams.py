"""`docs/streams_compared.md`: foretrace beside other libraries on streams of rows."""

from functools import cache

from benchmarks import ledger
from benchmarks.pages import learners
from benchmarks.pages.template import bold_best, filled, percent, table
from benchmarks.streams import rows

PAGE = ledger.ROOT / "docs" / "streams_compared.md"
REACH = {
    "mixture of experts (default)": "`foretrace stream`, defaults",
    "online": "network, online rule",
    "online, input gain x 10": "network, online rule, input gain × 10",
    "spatial": "network, spatial learning",
    "rolling BPTT, equal memory": "BPTT over a window of equal memory",
    "rolling BPTT, the whole reach": "BPTT over a window of 1,000 rows",
    "river ARF, the last 10 rows": "river ARF, the last 10 rows as features",
    "river ARF, the last 1,010 rows": "river ARF, the last 1,010 rows as features",
    "deep-river LSTM": "deep-river LSTM",
}
LIBRARIES = {
    "foretrace": "`foretrace stream`, defaults",
    "network": "network of foretrace, best rule",
    "river": "best of river",
    "deep-river": "best of deep-river",
    "CapyMOA": "best of CapyMOA, without rows before",
    "last": "the last known label",
}
NETWORKS = ("online", "exact", "hybrid", "BPTT", "spatial", "truncated")


def text():
    """Return the learners."""
    parts = {
        "reach": reach,
        "memory": memory,
        "speed": speed,
        "peers": peers,
        "soak": soak,
        "ordinary": ordinary,
    }
    parts["what"] = lambda: learners.what(found())
    for name, first in (("first", True), ("whole", False)):
        parts[f"{name}_accuracy"] = lambda first=first: libraries(first, classes=True)
        parts[f"{name}_error"] = lambda first=first: libraries(first, classes=False)
    parts["packaged"] = lambda: learners.packaged(found()).splitlines()[-1]
    parts["unseen"] = lambda: learners.unseen(found()).splitlines()[-1]
    return filled("streams", parts)


@cache
def found():
    """Return the records by their names."""
    return {name: ledger.read(ledger.RECORDS / f"{name}.jsonl") for name in learners.NAMES}


def reach():
    """Return accuracies at the longest distance: one row a learner, one column a task."""
    records = [r for r in found()["reach"] + found()["reach_deep_river"] if not r["cell"]["seed"]]
    longest = max(r["cell"]["delay"] for r in records)
    lines = []
    for way, name in REACH.items():
        mine = [
            r for r in records if learners._peer(r["cell"]) == way and r["cell"]["delay"] == longest
        ]
        scores = {r["cell"]["task"]: learners._last(r["found"]) for r in mine}
        need = max(r["found"]["state_kib"] + r["found"].get("working_kib", 0) for r in mine)
        lines.append(
            [name, *(scores.get(task, "") for task in ("copy", "xor", "select")), f"{need:,.0f}"]
        )
    return table(["", "copy", "xor", "select", "memory, KiB"], lines)


def libraries(first, classes):
    """Return each library's best score on each stream, in hindsight, and the last label's."""
    best, shown = (max, percent) if classes else (min, "{:.4g}".format)
    names = [name for name, stream in rows.STREAMS.items() if stream.classes == classes]
    found = {name: best_of(name, first) for name in names}
    columns = [bold_best([found[name][way] for way in LIBRARIES], shown, best) for name in names]
    lines = [
        [name, *values]
        for name, values in zip(LIBRARIES.values(), zip(*columns, strict=True), strict=True)
        if any(values)
    ]
    counts = {name: "" if first else f", {found[name]['rows']:,} rows" for name in names}
    return table(["", *(name + count for name, count in counts.items())], lines)


def best_of(stream, first):
    """Return the best score of each library on a stream, of the models that reached its last row.

    Args:
        stream: name of the stream.
        first: whether the first rows alone count, or the whole stream.
    """
    records = found()["streams"] + found()["streams_deep_river"]
    records = [
        r
        for r in records
        if (r["cell"]["rows"] == learners.FIRST) == first and not r["cell"].get("seed")
    ]
    score, best = ("accuracy", max) if rows.STREAMS[stream].classes else ("mae", min)
    mine = {way: r["found"] for way, r in learners._of(records, stream).items()}
    most = max(one["rows"] for one in mine.values())
    scores = {"rows": most} | dict.fromkeys(LIBRARIES)
    for way, one in mine.items():
        library = library_of(way)
        if library and one["rows"] == most:
            scores[library] = best(
                one[score], one[score] if scores[library] is None else scores[library]
            )
    scores["last"] = next(
        one[f"no_change_{score}"] for one in mine.values() if f"no_change_{score}" in one
    )
    return scores


def library_of(way):
    """Return the library of a learner, or nothing for one that the page leaves out."""
    if way == "mixture of experts (default)":
        return "foretrace"
    if way.split(",")[0].split(" (")[0] in NETWORKS:
        return "network"
    return next((name for name in ("deep-river", "river", "CapyMOA") if way.startswith(name)), None)


def ordinary():
    """Return errors on ordinary columns: one row a stream, the mean over its seeds."""
    errors = {}
    for record in ledger.read(ledger.RECORDS / "ordinary.jsonl"):
        for way, error in record["found"].items():
            errors.setdefault(record["cell"]["stream"], {}).setdefault(way, []).append(error)
    means = {
        stream: {way: sum(found) / len(found) for way, found in ways.items()}
        for stream, ways in errors.items()
    }
    names = list(next(iter(means.values())))
    lines = [
        [stream, *bold_best([ways[name] for name in names], "{:.3g}".format)]
        for stream, ways in means.items()
    ]
    return table(["columns", *names], lines)


def memory():
    """Return resident memory after the first and the last rows of a long run."""
    lines = [
        [
            f"`--size {cell.get('size', 'small')}`",
            f"{one['mib_at_first']:.0f} MiB",
            f"{one['mib_at_last']:.0f} MiB",
        ]
        for cell, one in learners._pairs(found()["flat_memory"], "foretrace stream")
    ]
    return table(["`foretrace stream`", "after 10,000 rows", "after 1,000,000 rows"], lines)


def speed():
    """Return rows per second of the command."""
    parts = {
        (cell["stream"], cell["size"], cell["chunk"]): record["found"]["now"]
        for record in found()["latency"]
        if (cell := record["cell"])["what"] == "parts"
    }
    lines = [
        [
            f"{stream}, `--size {size}`, chunks of {chunk}",
            f"{one['row']:.0f}",
            f"{1e6 / one['row']:,.0f}",
        ]
        for (stream, size, chunk), one in parts.items()
        if stream == "elec2"
    ]
    return table(["", "µs a row", "rows per CPU second"], lines)


def peers():
    """Return times of single steps beside other libraries."""
    records = ledger.read(ledger.RECORDS / "peer_times.jsonl")
    lines = [
        [row["peer"], row["foretrace"], f"{row['foretrace_us']:,.0f}", f"{row['peer_us']:,.0f}"]
        for record in records
        for row in record["found"]["rows"]
    ]
    return table(["peer", "step", "foretrace, µs", "peer, µs"], lines)


def soak():
    """Say how often runs were stopped, and whether they ended as undisturbed ones."""
    runs = [record["found"] for record in found()["soak"]]
    kills, stops = (sum(one[name] for one in runs) for name in ("kills", "stops"))
    same = sum(one["same"] for one in runs)
    return (
        f"In all there were {kills} times `kill -9` and {stops} times SIGTERM.\n"
        f"{same} of {len(runs)} runs ended with the state and records of an undisturbed run."
    )
