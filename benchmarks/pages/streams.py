"""`docs/streams_compared.md`: foretrace beside other libraries on streams of rows."""

from statistics import mean

from benchmarks.pages import learners
from benchmarks.pages.template import (
    bold_best,
    by_columns,
    found_rows,
    grouped,
    percent,
    results,
    table,
)
from benchmarks.streams import rows

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


def what():
    """Return the target of each stream."""
    return learners.what()


def ahead(name):
    """Return on how many of a group of streams the default is ahead or level."""
    return getattr(learners, name)().splitlines()[-1]


def reach():
    """Return accuracies at the longest distance: one row a learner, one column a task."""
    found, lines = learners.reached(), []
    for way, name in REACH.items():
        mine = found[way]
        longest = max(delay for _, delay in mine)
        scores = [learners.last(mine.get((task, longest))) for task in ("copy", "xor", "select")]
        lines.append([name, *scores, f"{learners.most_memory(mine):,.0f}"])
    return table(["", "copy", "xor", "select", "memory, KiB"], lines)


def libraries(part, score):
    """Return each library's best score on each stream, in hindsight, and the last label's.

    Args:
        part: `first` for the first rows alone, or `whole`.
        score: `accuracy` or `mae`.
    """
    best, shown = (max, percent) if score == "accuracy" else (min, "{:.4g}".format)
    classes = score == "accuracy"
    names = [name for name, stream in rows.STREAMS.items() if stream.classes == classes]
    found = {name: best_of(name, part == "first") for name in names}
    lines = {label: [found[n][way] for n in names] for way, label in LIBRARIES.items()}
    lines = {label: values for label, values in lines.items() if any(values)}
    counts = [
        name + ("" if part == "first" else f", {found[name]['rows']:,} rows") for name in names
    ]
    return table(["", *counts], by_columns(lines, [(shown, best)] * len(names)))


def best_of(stream, first):
    """Return the best score of each library on a stream, of the models that reached its last row.

    Args:
        stream: name of the stream.
        first: whether the first rows alone count, or the whole stream.
    """
    score, best = ("accuracy", max) if rows.STREAMS[stream].classes else ("mae", min)
    mine = learners.of_stream(learners.real(first), stream)
    mine = {way: line["found"] for way, line in mine.items()}
    most = max(one["rows"] for one in mine.values())
    scores = {"rows": most} | dict.fromkeys(LIBRARIES)
    for way, one in mine.items():
        library = library_of(way)
        if library and one["rows"] == most:
            earlier = one[score] if scores[library] is None else scores[library]
            scores[library] = best(one[score], earlier)
    last = f"no_change_{score}"
    return scores | {"last": next(one[last] for one in mine.values() if last in one)}


def library_of(way):
    """Return the library of a learner, or nothing for one that the page leaves out."""
    if way == "mixture of experts (default)":
        return "foretrace"
    if way.split(",")[0].split(" (")[0] in NETWORKS:
        return "network"
    return next((name for name in ("deep-river", "river", "CapyMOA") if way.startswith(name)), None)


def ordinary():
    """Return errors on ordinary columns: one row a stream, the mean over its seeds."""
    lines = []
    whole = [pair for pair in results("ordinary") if "broken" not in pair[0]]
    for stream, runs in grouped(whole, "stream").items():
        means = [mean(one[way] for one in runs) for way in runs[0]]
        lines.append([stream, *bold_best(means, "{:.3g}".format)])
    return table(["columns", *runs[0]], lines)


def broken():
    """Return errors of the default and of plain least squares where some labels are broken."""
    found = {
        (cell["stream"], cell.get("broken", "none")): one
        for cell, one in results("ordinary", seed=0)
    }
    kinds = list(dict.fromkeys(kind for _, kind in found))
    lines = []
    for stream in dict.fromkeys(stream for stream, kind in found if kind != "none"):
        ours = [f"{found[stream, kind]['foretrace']:.3g}" for kind in kinds]
        plain = found[stream, "1 % of -9999"]["plain least squares"]
        lines.append([stream, *ours, f"{plain:.3g}"])
    return table(["columns", *kinds, "plain least squares, 1 %"], lines)


def memory():
    """Return resident memory after the first and the last rows of a long run."""
    lines = []
    for cell, one in results("flat_memory", what="foretrace stream"):
        ends = (f"{one[key]:.0f} MiB" for key in ("mib_at_first", "mib_at_last"))
        lines.append([f"`--size {cell.get('size', 'small')}`", *ends])
    return table(["`foretrace stream`", "after 10,000 rows", "after 1,000,000 rows"], lines)


def speed():
    """Return rows per second of the command."""
    lines = []
    for (stream, size, chunk), one in learners.timed_parts().items():
        if stream == "elec2":
            name = f"{stream}, {size}, chunks of {chunk}"
            lines.append([name, f"{one['row']:.0f}", f"{1e6 / one['row']:,.0f}"])
    return table(["", "µs a row", "rows per CPU second"], lines)


def peers():
    """Return the table of these times."""
    lines = [
        [row["peer"], row["foretrace"], f"{row['foretrace_us']:,.0f}", f"{row['peer_us']:,.0f}"]
        for row in found_rows("peer_times")
    ]
    return table(["peer", "step", "foretrace, µs", "peer, µs"], lines)


def soak():
    """Say how often runs were stopped, and whether they ended as undisturbed ones."""
    runs = [one for _, one in results("soak")]
    kills, stops, same = (sum(one[name] for one in runs) for name in ("kills", "stops", "same"))
    return (
        f"In all there were {kills} times `kill -9` and {stops} times SIGTERM.\n"
        f"Of {len(runs)} runs, {same} ended with the state and records of an undisturbed run."
    )
