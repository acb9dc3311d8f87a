"""`docs/streams_compared.md`: foretrace beside other libraries on streams of rows."""

from statistics import mean, median

from benchmarks.pages import learners
from benchmarks.pages.learners import BROKEN_WAYS as WAYS
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
SPEED = {
    "mixture of experts (default)": "`foretrace stream`, defaults",
    "mixture, fast": "`foretrace stream --size fast`",
    "river logistic regression": "river logistic regression",
    "river ALMA": "river ALMA",
    "river nearest neighbours": "river nearest neighbours",
    "river ARF": "river ARF",
    "CapyMOA SGBT": "CapyMOA SGBT",
    "deep-river LSTM": "deep-river LSTM",
}
"""Names of learners in the table of times."""
NETWORKS = ("online", "exact", "hybrid", "BPTT", "spatial", "truncated")


def what():
    """Return the target of each stream."""
    return learners.what()


def ahead(name):
    """Return on how many of a group of streams the default has the best score."""
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
    now = [pair for pair in results("ordinary") if "commit" not in pair[0]]
    whole = [pair for pair in now if "broken" not in pair[0]]
    some = grouped([pair for pair in now if pair[0].get("broken") == "1 % of -9999"], "stream")
    for stream, runs in grouped(whole, "stream").items():
        means = [mean(one[way] for one in runs) for way in runs[0]]
        also = mean(one["foretrace"] for one in some[stream])
        lines.append([stream, *bold_best(means, "{:.3g}".format), f"{also:.3g}"])
    return table(["columns", *runs[0], "foretrace, 1 % of −9999"], lines)


def broken():
    """Return the default's errors where labels are broken, over `plain_errors` but for `exact`."""
    found, lines = learners.broken_errors(), []
    plain = plain_errors(found) | {"exact": 1}
    for kind, errors in found.items():
        ratios = {name: one["foretrace"] / plain[name] for name, one in errors.items()}
        lines.append([kind, *(f"{ratio:,.3g}" for ratio in ratios.values())])
    names = (f"{name}, error itself" if name == "exact" else name for name in plain)
    return table(["broken labels", *names], lines)


def broken_ways():
    """Return the median of errors over `plain_errors` for each way."""
    found, lines = learners.broken_errors(), []
    plain = plain_errors(found)
    for kind, errors in found.items():
        of = [
            [one[way] / plain[name] for name, one in errors.items() if way in one] for way in WAYS
        ]
        lines.append([kind, *(f"{median(ratios):,.3g}" if ratios else "" for ratios in of)])
    return table(["broken labels", *WAYS.values()], lines)


def plain_errors(found):
    """Return the error of plain least squares on each stream where no label is broken."""
    return {name: one["plain least squares"] for name, one in found["none"].items()}


def memory():
    """Return resident memory after the first and the last rows of a long run."""
    lines = []
    for cell, one in results("flat_memory", what="foretrace stream"):
        ends = (f"{one[key]:.0f} MiB" for key in ("mib_at_first", "mib_at_last"))
        lines.append([f"`--size {cell.get('size', 'small')}`", *ends])
    return table(["`foretrace stream`", "after 10,000 rows", "after 1,000,000 rows"], lines)


def speed():
    """Return accuracy and time of a row on the whole of elec2, the fastest learner first."""
    mine = learners.of_stream(learners.real(False), "elec2")
    found = [(mine[way]["found"], name) for way, name in SPEED.items() if way in mine]
    most, lines = max(one["rows"] for one, _ in found), []
    for one, name in sorted(found, key=lambda pair: pair[0]["cpu_us_per_row"]):
        part = "" if one["rows"] == most else f", the first {one['rows']:,} rows"
        lines.append([name + part, percent(one["accuracy"]), f"{one['cpu_us_per_row']:,.0f}"])
    return table(["learner", "accuracy", "µs a row"], lines)


def peers():
    """Return the table of these times, without comparisons of one algorithm with another."""
    lines = [
        [row["peer"], row["foretrace"], f"{row['foretrace_us']:,.0f}", f"{row['peer_us']:,.0f}"]
        for row in found_rows("peer_times")
        if not row["foretrace"].startswith("SnAp-1")
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
