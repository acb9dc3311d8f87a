"""The table of the README beside other libraries, from the committed records."""

from benchmarks import ledger
from benchmarks.pages import paper, yardsticks
from benchmarks.pages.streams import best_of
from benchmarks.pages.template import percent, table


def text():
    """Return the table, those rows first in which we are behind."""
    times = {
        (row["peer"].split()[0], row["foretrace"]): row
        for record in ledger.read(ledger.RECORDS / "peer_times.jsonl")
        for row in record["found"]["rows"]
    }
    elec2, boards = best_of("elec2", first=False), yardsticks.scores()
    online = paper.cells("table1", "paper")["online", "LRU x 4"]

    def time(library, step, unit):
        of = times[library, step]
        return [f"{of[key] / unit:,.0f}" for key in ("foretrace_us", "peer_us")]

    rows = [
        [
            "the paper, Table 1",
            "online loss, lower",
            *map(paper.loss, (online.mean, online.entry.published)),
            "the paper",
        ],
        *(river(stream, boards["river", stream]) for stream in ("bananas", "elec2")),
        [
            "deep-river, its best model",
            "accuracy on elec2, higher",
            *map(percent, (elec2["foretrace"], elec2["deep-river"])),
            "us",
        ],
        [
            "PyTorch, BPTT, GRU x 4",
            "ms a step, lower",
            *time("torch", "BPTT, GRU x 4, 48 steps, batch 50", 1000),
            "us",
        ],
        [
            "braintrace, chunks of 16",
            "µs a step of exact RTRL, lower",
            *time("braintrace", "chunks of 16", 1),
            "us",
        ],
        [
            "braintrace, step by step",
            "µs a step of exact RTRL, lower",
            *time("braintrace", "step by step", 1),
            "us",
        ],
    ]
    return table(["beside", "measure, which is better", "ours", "theirs", "task by"], rows)


def river(stream, found):
    """Return the row of a stream of river's own board."""
    theirs = max((way for way in found if not way.startswith("foretrace")), key=found.get)
    shown = [percent(found[way]) for way in ("foretrace", theirs)]
    return [f"river, {theirs}", f"accuracy on {stream}, higher", *shown, "river"]
