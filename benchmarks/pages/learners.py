"""`results/streams.md`: every learner on streams of rows."""

from functools import partial

from benchmarks.pages.template import bold_best, percent, records, results, table
from benchmarks.streams import rows
from benchmarks.streams.cues import LABELS
from benchmarks.streams.ordinary import BROKEN

FIRST = 5000
BASELINES = {"no_change_": "the last known label", "majority_": "majority", "mean_": "mean"}
BROKEN_WAYS = {
    "foretrace": "foretrace",
    "f6ae9fc8": "foretrace without `raw`",
    "plain least squares": "plain least squares",
    "last value": "last value",
    "mean": "mean",
}


def reach():
    """Return the table of dependencies many rows back: accuracy of the last three tenths."""
    found = reached()
    tasks = {key for mine in found.values() for key in mine}
    columns = sorted(tasks, key=lambda key: (list(LABELS).index(key[0]), key[1]))
    head = ["", *(f"{task}, {delay:,} rows back" for task, delay in columns)]
    lines = []
    for way, mine in found.items():
        longest = mine[max(mine, key=lambda key: (key[1], key[0] == "copy"))]
        need = f"{most_memory(mine):,.0f}"
        window = f" ({longest['reach']:,} rows)" if "reach" in longest and "equal" in way else ""
        shown = [last(mine.get(key)) for key in columns]
        lines.append([way + window, *shown, number(longest["cpu_us_per_row"]), need])
    return table([*head, "µs/row", "memory, KiB"], lines)


def reached():
    """Return the results of each way by task and delay, of the first seed."""
    found = {}
    for cell, one in results("reach", "reach_deep_river", seed=0):
        found.setdefault(_peer(cell), {})[cell["task"], cell["delay"]] = one
    return found


def most_memory(mine):
    """Return the KiB of a way on the task that takes most, at its longest delay."""
    longest = max(delay for _, delay in mine)
    at_longest = [one for (_, delay), one in mine.items() if delay == longest]
    return max(one["state_kib"] + one.get("working_kib", 0) for one in at_longest)


def what(group="STREAMS"):
    """Return the target of each stream of a group."""
    return "\n".join(
        f"- *{name}*: {stream.what}"
        + (f"; each label {stream.delay} rows late" if stream.delay else "")
        for name, stream in getattr(rows, group).items()
    )


def real(first):
    """Return the records of the first rows of real streams, or of the other runs."""
    lines = records("streams", "streams_deep_river")
    if first:
        return [line for line in lines if line["cell"]["rows"] == FIRST]
    cells = [(line, line["cell"]) for line in lines]
    return [line for line, cell in cells if cell["rows"] != FIRST and not cell.get("seed")]


def long():
    """Return a row for each way on each long stream: first, fifth, ninth tenth, and all."""
    head = ["", "rows", "labels", "first tenth", "fifth", "ninth", "all", "log loss", "µs/row"]
    found, lines = {}, []
    for cell, one in results("long_streams"):
        found.setdefault((cell["stream"], cell["rows"]), []).append((cell["way"], one))
    for (name, _), mine in sorted(found.items()):
        score, of = ("mae", min) if "mae" in mine[0][1] else ("accuracy", max)
        shown = partial(_text, score=score)
        best = bold_best([one[score] for _, one in mine], shown, of)
        for (way, one), text in zip(mine, best, strict=True):
            tenths = [shown(one["parts"][at]) for at in (0, 4, 8)]
            log_loss = f"{one['log_loss']:.3f}" if "log_loss" in one else ""
            counts = [f"{one['rows']:,}", f"{one['scored']:,}"]
            times = number(one["cpu_us_per_row"])
            lines.append([f"{name}: {way}", *counts, *tenths, text, log_loss, times])
        one = mine[0][1]
        plain = "mean_mae" if of is min else "majority_accuracy"
        best = shown(of(one["no_change_" + score], one[plain]))
        lines.append([f"{name}: the best baseline", *[""] * 5, best, "", ""])
    return table(head, lines)


def packaged():
    """Return the table of packaged streams: the default beside the best of river."""
    return _beside(rows.PACKAGED, {"river": (10, 14)})


def unseen():
    """Return the table of the streams that were written down last, with deep-river."""
    return _beside(rows.UNSEEN, {"river": (6, 10), "deep-river": (2, 2)})


def _beside(streams, libraries):
    """Return a row for each stream, and on how many the default has the best score.

    Args:
        streams: streams by name.
        libraries: for each, how many of its learners have to be there, for classes and for numbers:
            the best of some would be no peer.
    """
    head = ["", "rows", "default"]
    head += [cell for library in libraries for cell in (f"best of {library}", "")]
    head += ["last label", "majority or mean", "µs/row: default, " + ", ".join(libraries)]
    lines, first, near = [], 0, 0
    for name, stream in streams.items():
        score = "accuracy" if stream.classes else "mae"
        best = max if stream.classes else min
        mine = of_stream(records("streams", "streams_deep_river"), name)
        mine = {way: line["found"] | {"is busy": busy(line)} for way, line in mine.items()}
        ours = mine.pop("mixture of experts (default)", None)
        peers = [[way for way in mine if way.startswith(library)] for library in libraries]
        counts = [least[not stream.classes] for least in libraries.values()]
        if ours is None or any(map(int.__lt__, map(len, peers), counts)):
            continue
        whole = [[way for way in names if mine[way]["rows"] == ours["rows"]] for names in peers]
        ways = [best(names, key=lambda way: mine[way][score]) for names in whole]
        kinds = ("no_change_", "majority_" if stream.classes else "mean_")
        plain = [ours[kind + score] for kind in kinds]
        most = best([*plain, *(mine[way][score] for way in ways)])
        is_first = best(most, ours[score]) == ours[score]
        is_near = ours[score] >= most - 0.01 if stream.classes else ours[score] <= 1.01 * most
        first, near = first + is_first, near + (is_near and not is_first)
        values = [_text(ours[score], score)]
        values[0] = f"**{values[0]}**" if is_first else values[0]
        for library, way in zip(libraries, ways, strict=True):
            values += [_text(mine[way][score], score), way.removeprefix(f"{library} ")]
        shown = (ours, *(mine[way] for way in ways))
        times = ["–" if one["is busy"] else number(one["cpu_us_per_row"]) for one in shown]
        plain = [_text(value, score) for value in plain]
        lines.append([name, f"{ours['rows']:,}", *values, *plain, ", ".join(times)])
    count = f"The default has the best score on {first} of {len(lines)} streams"
    count += f", and is within one point or one per cent of the best on {near}." if near else "."
    return "\n".join([table(head, lines), "", count])


def broken_errors():
    """Return the error of each way on each stream where labels are broken, by kind."""
    found = {}
    for cell, one in results("ordinary", seed=0):
        one = {cell["commit"]: one["foretrace"]} if "commit" in cell else one
        kind = cell.get("broken", "none")
        found.setdefault(kind, {}).setdefault(cell["stream"], {}).update(one)
    kinds = ("none", *(kind for kind in BROKEN if kind in found))
    return {kind: {name: found[kind][name] for name in found["one of 1e6"]} for kind in kinds}


def broken():
    """Return a row of errors for each stream and kind of broken labels."""
    lines = []
    for kind, errors in broken_errors().items():
        for name, one in errors.items():
            shown = [f"{one[way]:.3g}" if way in one else "" for way in BROKEN_WAYS]
            lines.append([name, kind, *shown])
    lines.sort(key=lambda line: list(errors).index(line[0]))
    return table(["columns", "broken labels", *BROKEN_WAYS.values()], lines)


def late():
    """Return the scores of the default by stream and by when labels arrive."""
    heads = {0: "at once", **{n: f"{n} late" for n in (1, 10, 100, 200)}}
    heads |= {f"any {n}": f"0 to {n:,} late" for n in (200, 5000)}
    found = {(cell["stream"], cell["labels"]): one for cell, one in results("late")}
    lines = []
    for name in dict.fromkeys(stream for stream, _ in found):
        score = "accuracy" if "accuracy" in found[name, 0] else "mae"
        shown = percent if score == "accuracy" else "{:.3g}".format
        ones = [found[name, labels] for labels in heads]
        simple = [ones[-1][prefix + score] for prefix in BASELINES if prefix + score in ones[-1]]
        lines.append([name, *(shown(one) for one in (*(one[score] for one in ones), *simple))])
    return table(["", *heads.values(), "last label", "majority or mean"], lines)


def streams(part, heading):
    """Return a table for classes and one for numbers: every learner's scores on real streams.

    Args:
        part: `first` for the first rows alone, or `whole`, or as many as there are records of.
        heading: marks in front of a title.
    """
    lines, parts = real(part == "first"), []
    for classes, score in ((True, "accuracy"), (False, "mae")):
        names = [name for name, stream in rows.STREAMS.items() if stream.classes == classes]
        mine = {name: found for name in names if (found := of_stream(lines, name))}
        title = f"{heading} {'Accuracy' if classes else 'Mean absolute error'}"
        counts = {name: max(r["found"]["rows"] for r in mine[name].values()) for name in mine}
        head = ["", *(f"{name}, {counts[name]:,} rows" for name in mine), "µs/row"]
        of, shown = max if classes else min, []
        best = {name: of(r["found"][score] for r in mine[name].values()) for name in mine}
        for way in dict.fromkeys(way for name in mine for way in mine[name]):
            there = [mine[name].get(way) for name in mine]
            values = [_score(mine[name].get(way), score, counts[name], best[name]) for name in mine]
            times = [one["found"]["cpu_us_per_row"] for one in there if one and not busy(one)]
            ends = dict.fromkeys(number(end(times)) for end in (min, max) if times)
            shown.append([way, *values, " to ".join(ends)])
        for prefix, label in BASELINES.items():
            values = [_baseline(mine[name], prefix + score) for name in mine]
            if any(values):
                shown.append([label, *values, ""])
        parts += [title, "", table(head, shown), ""]
    return "\n".join(parts)


def latency():
    """Return times of single rows and of the command."""
    columns = {
        "learn_one": "`learn_one`, µs",
        "learn_one_paper_rule": "by the paper's rule, µs",
        "predict_one": "`predict_one`, µs",
        "step": "`Learner.step`, µs",
        "inference": "inference, µs",
    }
    single, command = [], []
    for cell, one in results("latency", what="one row"):
        times = [number(one[f"{name}_us"]) for name in columns]
        single.append([cell["size"], *times, f"{one['step_over_inference']:.1f}"])
    for cell, one in results("latency", what="foretrace stream"):
        per_second = f"{one['rows_per_cpu_second']:,.0f}"
        name = f"{cell['size']}, chunks of {rows_in_a_call(cell)}"
        command.append([name, number(one["cpu_us_per_row"]), per_second])
    first = table(["size", *columns.values(), "step / inference"], single)
    return first + "\n\n" + table(["`foretrace stream`", "µs/row", "rows per CPU second"], command)


def rows_in_a_call(cell):
    """Return the number of rows of a chunk, which the program chooses in newer records."""
    return cell.get("chunk", 32 if cell["size"] == "fast" else 1)


def timed_parts():
    """Return the times of the parts of a row by stream, size and chunk, by the last record."""
    return {
        (cell["stream"], cell["size"], rows_in_a_call(cell)): one["now"]
        for cell, one in results("latency", what="parts")
    }


def row_parts():
    """Return the parts of a row, for each stream, size and chunk."""
    groups = ("reading", "encoding"), ("mixture", "network"), ("intervals", "scores", "records")
    head = ["µs of CPU time a row", *map(", ".join, groups), "row", "rows per CPU second"]
    lines = []
    for (stream, size, chunk), one in timed_parts().items():
        parts = [sum(one.get(part, 0.0) for part in group) for group in groups]
        values = [*(f"{part:.0f}" for part in (*parts, one["row"])), f"{1e6 / one['row']:,.0f}"]
        lines.append([f"{stream}, {size}, chunks of {chunk}", *values])
    return table(head, lines)


def busy(record):
    """Say whether a record was made beside other work on two cores: its times tell little.

    Records that do not say their commit are older than this rule.
    """
    return "commit" in record["surroundings"] and record["surroundings"]["load"] > 2


def number(value):
    """Return a time with three digits at most."""
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _peer(cell):
    if not cell.get("lags"):
        return cell["way"]
    return cell["way"] + (
        ", with rows before" if "stream" in cell else f", the last {cell['lags']:,} rows"
    )


def last(one):
    if one is None:
        return ""
    if None in (parts := one["parts"]) or len(parts) < 10:
        return f"time limit after {one['rows']:,} rows"
    return f"{sum(parts[-3:]) / 3:.2f}"


def of_stream(records, name):
    """Return a stream's records by way, for the largest number of rows asked for."""
    mine = [r for r in records if r["cell"]["stream"] == name]
    most = max((r["found"]["rows"] for r in mine), default=0)
    return {_peer(r["cell"]): r for r in mine if (r["cell"]["rows"] or most) >= most}


def _text(value, score):
    return percent(value) if "accuracy" in score else f"{value:.4g}"


def _score(record, score, rows, best):
    if record is None:
        return ""
    one = record["found"]
    shown = f"**{_text(one[score], score)}**" if one[score] == best else _text(one[score], score)
    return shown + (f" ({one['rows']:,} rows, then the time limit)" if one["rows"] < rows else "")


def _baseline(mine, score):
    values = [r["found"][score] for r in mine.values() if score in r["found"]]
    return _text(values[0], score) if values else ""
