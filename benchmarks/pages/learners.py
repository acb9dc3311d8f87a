"""`results/streams.md`: every learner on streams of rows."""

from functools import partial

from benchmarks import ledger
from benchmarks.pages.template import filled, percent, table
from benchmarks.streams import rows
from benchmarks.streams.cues import LABELS

PAGE = ledger.ROOT / "results" / "streams.md"
FIRST = 5000
NAMES = (
    "reach",
    "reach_deep_river",
    "flat_memory",
    "streams",
    "streams_deep_river",
    "long_streams",
    "latency",
    "soak",
)


def text(records=ledger.RECORDS):
    """Return the page.

    Args:
        records: folder of the records.
    """
    found = {name: ledger.read(records / f"{name}.jsonl") for name in NAMES}
    parts = (reach, what, streams, whole, long, packaged, unseen, targets, latency, row_parts)
    return filled("learners", {part.__name__: partial(part, found) for part in parts})


def reach(found):
    """Return the table of dependencies many rows back: accuracy of the last three tenths."""
    records = found["reach"] + found["reach_deep_river"]
    columns = sorted(
        {(list(LABELS).index(c["task"]), c["delay"], c["task"]) for c in cells(records)}
    )
    ways = list(dict.fromkeys(_peer(cell) for cell in cells(records)))
    head = ["", *(f"{task}, {delay:,} rows back" for _, delay, task in columns)]
    lines = []
    for way in ways:
        mine = {}
        for record in records:
            if _peer(record["cell"]) == way and record["cell"]["seed"] == 0:
                mine[record["cell"]["task"], record["cell"]["delay"]] = record["found"]
        shown = [_last(mine.get((task, delay))) for _, delay, task in columns]
        longest = mine[max(mine, key=lambda key: (key[1], key[0] == "copy"))]
        need = most_memory(mine)
        reached = f" ({longest['reach']:,} rows)" if "reach" in longest and "equal" in way else ""
        lines.append([way + reached, *shown, number(longest["cpu_us_per_row"]), f"{need:,.0f}"])
    return table([*head, "µs/row", "memory, KiB"], lines)


def most_memory(mine):
    """Return the KiB of a way on the task that takes most, at its longest delay."""
    longest = max(delay for _, delay in mine)
    return max(
        one["state_kib"] + one.get("working_kib", 0)
        for (_, delay), one in mine.items()
        if delay == longest
    )


def what(found):
    """Return the target of each stream."""
    return "\n".join(
        f"- *{name}*: {stream.what}" + _late(stream) for name, stream in rows.STREAMS.items()
    )


def targets(found):
    """Return the target of each of the streams that were written down last."""
    return "\n".join(f"- *{name}*: {stream.what}" for name, stream in rows.UNSEEN.items())


def streams(found):
    """Return a table for classes and one for numbers: scores over the first rows."""
    records = [
        r for r in found["streams"] + found["streams_deep_river"] if r["cell"]["rows"] == FIRST
    ]
    return "\n".join(_tables(records, "###"))


def whole(found):
    """Return the same tables for whole streams, or as many rows as there are records of."""
    records = found["streams"] + found["streams_deep_river"]
    records = [r for r in records if r["cell"]["rows"] != FIRST and not r["cell"].get("seed")]
    return "\n".join(_tables(records, "####"))


def long(found):
    """Return a row for each way on each long stream: first, fifth, ninth tenth, and all."""
    head = ["", "rows", "labels", "first tenth", "fifth", "ninth", "all", "log loss", "µs/row"]
    lines = []
    streams = dict.fromkeys((cell["stream"], cell["rows"]) for cell in cells(found["long_streams"]))
    for name, count in sorted(streams):
        mine = [
            r
            for r in found["long_streams"]
            if (r["cell"]["stream"], r["cell"]["rows"]) == (name, count)
        ]
        score, of = ("mae", min) if "mae" in mine[0]["found"] else ("accuracy", max)
        best = of(r["found"][score] for r in mine)
        for record in mine:
            one = record["found"]
            tenths = [_text(one["parts"][at], score) for at in (0, 4, 8)]
            text = _text(one[score], score)
            log_loss = f"{one['log_loss']:.3f}" if "log_loss" in one else ""
            values = [f"**{text}**" if one[score] == best else text, log_loss]
            counts = [f"{one['rows']:,}", f"{one['scored']:,}"]
            times = number(one["cpu_us_per_row"])
            lines.append([f"{name}: {record['cell']['way']}", *counts, *tenths, *values, times])
        one = mine[0]["found"]
        plain = _text(
            of(one["no_change_" + score], one["mean_mae" if of is min else "majority_accuracy"]),
            score,
        )
        lines.append([f"{name}: the best baseline", *[""] * 5, plain, "", ""])
    return table(head, lines)


def packaged(found):
    """Return the table of packaged streams: the default beside the best of river."""
    return _beside(found, rows.PACKAGED, {"river": (10, 14)})


def unseen(found):
    """Return the table of the streams that were written down last, with deep-river."""
    return _beside(found, rows.UNSEEN, {"river": (6, 10), "deep-river": (2, 2)})


def _beside(found, streams, libraries):
    """Return a row for each stream, and on how many the default is ahead or level.

    Args:
        found: records by their names.
        streams: streams by name.
        libraries: for each, how many of its learners have to be there, for classes and for numbers:
            the best of some would be no peer.
    """
    head = ["", "rows", "default"]
    head += [cell for library in libraries for cell in (f"best of {library}", "")]
    head += ["last label", "majority or mean", "µs/row: default, " + ", ".join(libraries)]
    lines, ahead = [], []
    for name, stream in streams.items():
        score = "accuracy" if stream.classes else "mae"
        best = max if stream.classes else min
        mine = _of(found["streams"] + found["streams_deep_river"], name)
        mine = {way: r["found"] for way, r in mine.items()}
        ours = mine.pop("mixture of experts (default)", None)
        peers = [[way for way in mine if way.startswith(library)] for library in libraries]
        counts = [least[not stream.classes] for least in libraries.values()]
        if ours is None or any(map(int.__lt__, map(len, peers), counts)):
            continue
        whole = [[way for way in names if mine[way]["rows"] == ours["rows"]] for names in peers]
        ways = [best(names, key=lambda way: mine[way][score]) for names in whole]
        plain = [
            ours[key + score] for key in ("no_change_", "majority_" if stream.classes else "mean_")
        ]
        most = best([*plain, *(mine[way][score] for way in ways)])
        level = ours[score] >= most - 0.01 if stream.classes else ours[score] <= 1.01 * most
        ahead.append(level)
        values = [_text(ours[score], score)]
        values[0] = f"**{values[0]}**" if level else values[0]
        for library, way in zip(libraries, ways, strict=True):
            values += [_text(mine[way][score], score), way.removeprefix(f"{library} ")]
        times = [one["cpu_us_per_row"] for one in (ours, *(mine[way] for way in ways))]
        plain = [_text(value, score) for value in plain]
        lines.append([name, f"{ours['rows']:,}", *values, *plain, ", ".join(map(number, times))])
    told = (
        "Ahead of all of these, or level with the best (one point, or one per cent): "
        f"{sum(ahead)} of {len(ahead)}."
    )
    return "\n".join([table(head, lines), "", told])


def _tables(records, heading):
    parts = []
    for classes, score in ((True, "accuracy"), (False, "mae")):
        names = [name for name, stream in rows.STREAMS.items() if stream.classes == classes]
        mine = {name: _of(records, name) for name in names}
        names = [name for name in names if mine[name]]
        if not names:
            continue
        parts += [f"{heading} {'Accuracy' if classes else 'Mean absolute error'}", ""]
        counts = {name: max(r["found"]["rows"] for r in mine[name].values()) for name in names}
        head = ["", *(f"{name}, {counts[name]:,} rows" for name in names), "µs/row"]
        lines = []
        ways = list(dict.fromkeys(way for name in names for way in mine[name]))
        best = {name: _best(mine[name], score, classes) for name in names}
        for way in ways:
            values = [
                _score(mine[name].get(way), score, counts[name], best[name]) for name in names
            ]
            times = [
                one["found"]["cpu_us_per_row"]
                for name in names
                if (one := mine[name].get(way)) and not busy(one)
            ]
            ends = dict.fromkeys(number(end(times)) for end in (min, max) if times)
            lines.append([way, *values, " to ".join(ends)])
        for prefix, what in {
            "no_change_": "the last known label",
            "majority_": "majority",
            "mean_": "mean",
        }.items():
            values = [_baseline(mine[name], prefix + score, best[name]) for name in names]
            if any(values):
                lines.append([what, *values, ""])
        parts += [table(head, lines), ""]
    return parts


def latency(found):
    """Return times of single rows and of the command."""
    columns = {
        "learn_one": "`learn_one`, µs",
        "learn_one_paper_rule": "by the paper's rule, µs",
        "predict_one": "`predict_one`, µs",
        "step": "`Learner.step`, µs",
        "inference": "inference, µs",
    }
    single = [
        [
            cell["size"],
            *(number(one[f"{name}_us"]) for name in columns),
            f"{one['step_over_inference']:.1f}",
        ]
        for cell, one in _pairs(found["latency"], "one row")
    ]
    command = [
        [
            f"{cell['size']}, `--chunk {cell['chunk']}`",
            number(one["cpu_us_per_row"]),
            f"{one['rows_per_cpu_second']:,.0f}",
        ]
        for cell, one in _pairs(found["latency"], "foretrace stream")
    ]
    return "\n\n".join(
        [
            table(["size", *columns.values(), "step / inference"], single),
            table(["`foretrace stream`", "µs/row", "rows per CPU second"], command),
        ]
    )


def _pairs(records, what):
    """Return the cells and results of one kind."""
    return [
        (record["cell"], record["found"]) for record in records if record["cell"]["what"] == what
    ]


def row_parts(found):
    """Return the parts of a row, for each stream, size and chunk by the last record."""
    records = {
        f"{cell['stream']}, {cell['size']}, `--chunk {cell['chunk']}`": record["found"]["now"]
        for record in found["latency"]
        if (cell := record["cell"])["what"] == "parts"
    }
    groups = ("reading", "encoding"), ("mixture", "network"), ("intervals", "scores", "records")
    head = ["µs of CPU time a row", *map(", ".join, groups), "row", "rows per CPU second"]
    lines = []
    for name, one in records.items():
        parts = [sum(one.get(part, 0.0) for part in group) for group in groups]
        values = [*(f"{part:.0f}" for part in (*parts, one["row"])), f"{1e6 / one['row']:,.0f}"]
        lines.append([name, *values])
    return table(head, lines)


def cells(records):
    """Return the measured cells."""
    return [record["cell"] for record in records]


def busy(record):
    """Say whether a record was made beside much other work, and its times tell little.

    Records that do not say their commit are older than this rule.
    """
    return "commit" in record["surroundings"] and record["surroundings"]["load"] > 4


def number(value):
    """Return a time with three digits at most."""
    return f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def _late(stream):
    return f"; each label {stream.delay} rows late" if stream.delay else ""


def _peer(cell):
    if not cell.get("lags"):
        return cell["way"]
    return cell["way"] + (
        ", with rows before" if "stream" in cell else f", the last {cell['lags']:,} rows"
    )


def _last(one):
    if one is None:
        return ""
    if None in (parts := one["parts"]) or len(parts) < 10:
        return f"time limit after {one['rows']:,} rows"
    return f"{sum(parts[-3:]) / 3:.2f}"


def _of(records, name):
    """Return a stream's records by way, for the largest number of rows asked for."""
    mine = [r for r in records if r["cell"]["stream"] == name]
    most = max((r["found"]["rows"] for r in mine), default=0)
    return {_peer(r["cell"]): r for r in mine if (r["cell"]["rows"] or most) >= most}


def _best(mine, score, classes):
    values = [r["found"][score] for r in mine.values()]
    return max(values) if classes else min(values)


def _text(value, score):
    return percent(value) if "accuracy" in score else f"{value:.4g}"


def _score(record, score, rows, best):
    if record is None:
        return ""
    one = record["found"]
    shown = f"**{_text(one[score], score)}**" if one[score] == best else _text(one[score], score)
    return shown + (f" ({one['rows']:,} rows, then the time limit)" if one["rows"] < rows else "")


def _baseline(mine, score, best):
    values = [r["found"][score] for r in mine.values() if score in r["found"]]
    return _text(values[0], score) if values else ""
