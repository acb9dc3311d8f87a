"""The table of the README beside other libraries, from the committed records."""

from benchmarks.pages import paper, streams, yardsticks
from benchmarks.pages.template import found_rows, percent, table


def text():
    """Return the table, those rows first in which we are behind."""
    times = {(row["peer"].split()[0], row["foretrace"]): row for row in found_rows("peer_times")}
    elec2, boards = streams.best_of("elec2", first=False), yardsticks.scores()
    online = paper.cells("table1", "paper")["online", "LRU x 4"]

    def time(library, step, unit=1):
        of = times[library, step]
        return [f"{of[key] / unit:,.0f}" for key in ("foretrace_us", "peer_us")]

    losses = map(paper.loss, (online.mean, online.entry.published))
    shares = map(percent, (elec2["foretrace"], elec2["deep-river"]))
    torch = time("torch", "BPTT, GRU x 4, 48 steps, batch 50", 1000)
    exact = "µs a step of exact RTRL"
    chunks, steps = (time("braintrace", way) for way in ("chunks of 16", "step by step"))
    rows = [
        ["the paper, Table 1", "online loss, lower", *losses, "the paper"],
        *(river(stream, boards["river", stream]) for stream in ("bananas", "elec2")),
        ["deep-river, its best model", "accuracy on elec2, higher", *shares, "us"],
        ["PyTorch, BPTT, GRU x 4", "ms a step, lower", *torch, "us"],
        ["braintrace, chunks of 16", f"{exact}, lower", *chunks, "us"],
        ["braintrace, step by step", f"{exact}, lower", *steps, "us"],
    ]
    return table(["beside", "measure, which is better", "ours", "theirs", "task by"], rows)


def river(stream, found):
    """Return the row of a stream of river's own board."""
    theirs = max((way for way in found if not way.startswith("foretrace")), key=found.get)
    shown = [percent(found[way]) for way in ("foretrace", theirs)]
    return [f"river, {theirs}", f"accuracy on {stream}, higher", *shown, "river"]
