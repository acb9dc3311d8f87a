"""`docs/yardsticks.md`: scores on boards that others made, beside the ones that they publish."""

from benchmarks import ledger
from benchmarks.pages.template import bold_best, filled, percent, table
from benchmarks.streams.boards import RIVER
from benchmarks.streams.rows import ANY

PAGE = ledger.ROOT / "docs" / "yardsticks.md"
OURS = "foretrace"


def text():
    """Return the page."""
    return filled("yardsticks", PARTS)


def scores():
    """Return the scores by board and stream, then by learner; published ones come first."""
    found = {}
    for name in ("published", "boards"):
        for record in ledger.read(ledger.RECORDS / f"{name}.jsonl"):
            cell, one = record["cell"], record["found"]
            (score,) = (one[key] for key in ("accuracy", "mae", "score") if key in one)
            way = cell["way"].removeprefix("river ").removeprefix("CapyMOA ")
            # Published Electricity has two columns more.
            less = (cell["stream"], name) == ("elec2", "boards") and OURS not in way
            found.setdefault((cell["board"], cell["stream"]), {}).setdefault(
                f"{way}, six columns" if less else way, score
            )
    return found


def measure(stream):
    """Return the best of some scores on a stream, how a score is shown, and the measure's name."""
    if stream in ANY and not ANY[stream].classes:
        return min, "{:.4g}".format, "error, lower is better"
    if stream in ANY or stream == "ElectricityTiny":
        return max, percent, "accuracy, higher is better"
    return max, "{:.1f}".format, "score, higher is better"


def summary():
    """Return a row for each task, the one where we are farthest behind first."""
    lines = []
    for (board, stream), found in scores().items():
        if found.get(OURS) is None:
            continue
        best, shown, what = measure(stream)
        others = {way: score for way, score in found.items() if not way.startswith(OURS)}
        first = best(others, key=others.get)
        values = bold_best([found[OURS], others[first]], shown, best)
        gain = found[OURS] / others[first]
        lines.append((gain if best is max else 1 / gain, [board, stream, what, *values, first]))
    lines = [line for _, line in sorted(lines)]
    return table(["board", "task", "measure", "ours", "best of theirs", "which is"], lines)


def learners(*tasks):
    """Return every learner's score on some tasks, ours first and the best of each in bold.

    Those of one task are in the order of their scores, of several in that of their names.
    """
    found, (best, shown, _) = [scores()[task] for task in tasks], measure(tasks[0][1])
    ways = sorted({way for one in found for way in one}, key=str.lower)
    if len(tasks) == 1:
        ways.sort(key=found[0].get, reverse=best is max)
    ways.sort(key=lambda way: OURS not in way)
    columns = [bold_best([one.get(way) for way in ways], shown, best) for one in found]
    return table(
        ["", *(stream for _, stream in tasks)], map(list, zip(ways, *columns, strict=True))
    )


PARTS = {
    "summary": summary,
    "river_classes": lambda: learners(*(("river", s) for s in RIVER if ANY[s].classes)),
    "river_numbers": lambda: learners(*(("river", s) for s in RIVER if not ANY[s].classes)),
    "capymoa": lambda: learners(("CapyMOA", "ElectricityTiny")),
    "nab": lambda: learners(("NAB", "standard profile")),
}
