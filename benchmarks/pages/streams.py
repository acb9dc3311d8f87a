"""`docs/streams_compared.md`: foretrace beside other libraries on streams of rows."""

from functools import cache

from benchmarks import ledger
from benchmarks.pages.template import bold_best, filled, percent, table
from benchmarks.streams import page, rows

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
    "`foretrace stream`, defaults": lambda way: way == "mixture of experts (default)",
    "network of foretrace, best rule": lambda way: way.split(",")[0].split(" (")[0] in NETWORKS,
    "best of river": lambda way: way.startswith("river"),
    "best of deep-river": lambda way: way.startswith("deep-river"),
}
NETWORKS = ("online", "exact", "hybrid", "BPTT", "spatial", "truncated")


def text():
    """Return the page."""
    parts = {"reach": reach, "memory": memory, "speed": speed, "peers": peers, "soak": soak, "commands": commands}
    for name, first in (("first", True), ("whole", False)):
        parts[f"{name}_accuracy"] = lambda first=first: libraries(first, classes=True)
        parts[f"{name}_error"] = lambda first=first: libraries(first, classes=False)
    return filled("streams", parts | {"packaged": lambda: page.packaged(found()).splitlines()[-1]})


@cache
def found():
    """Return the records by their names."""
    return {name: ledger.read(ledger.RECORDS / f"{name}.jsonl") for name in page.NAMES}


def reach():
    """Return accuracies at the longest distance: one row a learner, one column a task."""
    records = [r for r in found()["reach"] + found()["reach_deep_river"] if not r["cell"]["seed"]]
    longest = max(r["cell"]["delay"] for r in records)
    lines = []
    for way, name in REACH.items():
        mine = [r for r in records if page._peer(r["cell"]) == way and r["cell"]["delay"] == longest]
        scores = {r["cell"]["task"]: page._last(r["found"]) for r in mine}
        need = max(r["found"]["state_kib"] + r["found"].get("working_kib", 0) for r in mine)
        lines.append([name, *(scores.get(task, "") for task in ("copy", "xor", "select")), f"{need:,.0f}"])
    return table(["", "copy", "xor", "select", "memory, KiB"], lines)


def libraries(first, classes):
    """Return the best score of each library on each stream, chosen in hindsight, and the last known label."""
    records = found()["streams"] + found()["streams_deep_river"]
    records = [r for r in records if (r["cell"]["rows"] == page.FIRST) == first and not r["cell"].get("seed")]
    score, best = ("accuracy", max) if classes else ("mae", min)
    last = f"no_change_{score}"
    shown = percent if classes else "{:.4g}".format
    names = [name for name, stream in rows.STREAMS.items() if stream.classes == classes]
    columns = []
    for name in names:
        mine = page._of(records, name)
        most = max((r["found"]["rows"] for r in mine.values()), default=0)
        mine = {way: r["found"] for way, r in mine.items() if r["found"]["rows"] == most}
        values = [best((one[score] for way, one in mine.items() if of(way)), default=None) for of in LIBRARIES.values()]
        values.append(next(one[last] for one in mine.values() if last in one))
        columns.append((f"{name}, {most:,} rows", bold_best(values, shown, best)))
    rows_ = [
        [name, *values]
        for name, values in zip(
            (*LIBRARIES, "the last known label"), zip(*(c for _, c in columns), strict=True), strict=True
        )
    ]
    return table(["", *(title for title, _ in columns)], rows_)


def memory():
    """Return resident memory after the first and the last rows of a long run."""
    lines = [
        [
            f"`--size {cell.get('size', 'small')}`",
            f"{one['mib_at_first']:.0f} MiB",
            f"{one['mib_at_last']:.0f} MiB",
        ]
        for cell, one in page._pairs(found()["flat_memory"], "foretrace stream")
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
        [f"{stream}, `--size {size}`, chunks of {chunk}", f"{one['row']:.0f}", f"{1e6 / one['row']:,.0f}"]
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
        f"{same} of {len(runs)} runs ended with the state and records of an undisturbed run, after {kills} times\n"
        f"`kill -9` and {stops} times SIGTERM in all."
    )


def commands():
    """Return the records and the scripts that wrote them."""
    lines = []
    for name, records in found().items():
        scripts = dict.fromkeys(record["command"].split()[2] for record in records)
        lines.append([f"`benchmarks/records/{name}.jsonl`", ", ".join(f"`python -m {script}`" for script in scripts)])
    return table(["records", "written by"], lines)
