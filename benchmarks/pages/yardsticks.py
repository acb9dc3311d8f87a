"""`docs/yardsticks.md`: scores on boards that others made, beside the ones that they publish."""

from statistics import mean

from benchmarks.pages.template import bold_best, by_columns, percent, results, table
from benchmarks.streams.boards import RIVER
from benchmarks.streams.rows import ANY

OURS = "foretrace"
CELLS = {"LRU": "two layers of LRUs", "GRU": "two layers of GRUs"}
CELLS |= {"RTU+GRU": "one layer, RTU and GRU side by side"}


def scores():
    """Return the scores by board and stream, then by learner; published ones come first.

    The score of a learner with several seeds is their mean.
    """
    found = {}
    for name in ("published", "boards"):
        several = {}
        for cell, one in results(name):
            (score,) = (one[key] for key in ("accuracy", "mae", "score") if key in one)
            way = cell["way"].removeprefix("river ").removeprefix("CapyMOA ")
            # Published Electricity has two columns more.
            less = (cell["stream"], name) == ("elec2", "boards") and OURS not in way
            way = f"{way}, six columns" if less else way
            way = f"{way}, {CELLS['GRU']}" if cell.get("cell") == "GRU" else way
            several.setdefault((cell["board"], cell["stream"], way), []).append(score)
        for (*task, way), some in several.items():
            found.setdefault(tuple(task), {}).setdefault(way, mean(some))
    return found


def measure(stream):
    """Return the best of some scores on a stream, how a score is shown, and the measure's name."""
    if stream in ANY and not ANY[stream].classes:
        return min, "{:.4g}".format, "error, lower is better"
    if stream in ANY or stream in ("ElectricityTiny", "ten graphs"):
        return max, percent, "accuracy, higher is better"
    if stream == "standard profile":
        return max, "{:.1f}".format, "score, higher is better"
    return max, "{:.2f}".format, "return from 0 to 1, higher is better"


def summary():
    """Return a row for each task, the one where we are farthest behind first."""
    lines = []
    for (board, stream), found in scores().items():
        others = {way: score for way, score in found.items() if not way.startswith(OURS)}
        if OURS not in found or not others:
            continue
        best, shown, what = measure(stream)
        first = best(others, key=others.get)
        values = bold_best([found[OURS], others[first]], shown, best)
        gain = found[OURS] / others[first]
        lines.append((gain if best is max else 1 / gain, [board, stream, what, *values, first]))
    lines = [line for _, line in sorted(lines)]
    return table(["board", "task", "measure", "ours", "best of theirs", "which is"], lines)


def learners(board, *names):
    """Return every learner's score on a board's tasks, ours first and the best of each in bold.

    Those of one task are in the order of their scores, of several in that of their names.

    Args:
        board: name of the board.
        names: names of tasks; of river's board, `classes` or `numbers`.
    """
    every = scores()
    if board == "river":
        names = [name for name in RIVER if ANY[name].classes == (names == ("classes",))]
    found, (best, shown, _) = [every[board, name] for name in names], measure(names[0])
    ways = sorted({way for one in found for way in one}, key=str.lower)
    if len(names) == 1:
        ways.sort(key=found[0].get, reverse=best is max)
    ways.sort(key=lambda way: OURS not in way)
    lines = {way: [one.get(way) for one in found] for way in ways}
    return table(["", *names], by_columns(lines, [(shown, best)] * len(names)))


def graphs():
    """Return our accuracy and the best of the others on each graph, where we are behind first."""
    found, lines = {}, []
    for cell, one in results("boards", board="CaDrift"):
        found.setdefault(cell["graph"], {})[cell["way"].removeprefix("river ")] = one["accuracy"]
    for graph, ways in found.items():
        others = {way: score for way, score in ways.items() if not way.startswith(OURS)}
        first = max(others, key=others.get)
        values = bold_best([ways[OURS], others[first]], percent, max)
        lines.append((ways[OURS] - others[first], [str(graph), *values, first]))
    lines = [line for _, line in sorted(lines)]
    return table(["seed", "ours", "best of theirs", "which is"], lines)


def touchstone():
    """Return the area of each series that nobody had looked at, and means with published ones."""
    pairs = results("boards", board="touchstone")
    new = [(cell["stream"], one) for cell, one in pairs if not one["was looked at"]]
    lines = [
        [stream, f"{one['rows']:,}", str(one["columns"]), f"{one['score']:.2f}"]
        for stream, one in new
    ]
    for name, some in (("these", [one for _, one in new]), ("all", [one for _, one in pairs])):
        value = mean(one["score"] for one in some)
        lines.append([f"**mean of {name} {len(some)}**", "", "", f"**{value:.3f}**"])
    return table(["series", "rows", "columns", "ROC-AUC"], lines)


def chains():
    """Return seeds, share of seeds that succeed and mean returns on gymnax's memory chain."""
    found = {}
    for cell, one in results("boards", board="gymnax"):
        found.setdefault((cell["length"], cell["cell"]), []).append(one["mean"])
    lines = [
        [
            str(length),
            CELLS[cell],
            str(len(some)),
            f"{mean(value > 0.5 for value in some):.2f}",
            f"{mean(some):z.2f}",
        ]
        for (length, cell), some in sorted(found.items())
    ]
    return table(["length", "network", "seeds", "share above .5", "mean return"], lines)
