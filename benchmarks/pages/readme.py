"""The table of the README beside other libraries, from the committed records."""

from benchmarks import ledger
from benchmarks.pages import paper
from benchmarks.pages.streams import best_of
from benchmarks.pages.template import percent, table


def text():
    """Return the table."""
    times = {
        (row["peer"].split()[0], row["foretrace"]): row
        for record in ledger.read(ledger.RECORDS / "peer_times.jsonl")
        for row in record["found"]["rows"]
    }
    torch = times["torch", "BPTT, GRU x 4, 48 steps, batch 50"]
    brain = times["braintrace", "step by step"]
    elec2 = best_of("elec2", first=False)
    online = paper.cells("table1", "paper")["online", "LRU x 4"]
    rows = [
        [
            "PyTorch",
            "ms for a step of BPTT, GRU x 4",
            *(f"{torch[key] / 1000:.0f}" for key in TIMES),
        ],
        ["braintrace", "µs for a step of exact RTRL", *(f"{brain[key]:,.0f}" for key in TIMES)],
        [
            "river, its best model",
            "accuracy on elec2",
            *map(percent, (elec2["foretrace"], elec2["river"])),
        ],
        [
            "deep-river, its best model",
            "accuracy on elec2",
            *map(percent, (elec2["foretrace"], elec2["deep-river"])),
        ],
        [
            "the paper",
            "online loss, Table 1",
            *map(paper.loss, (online.mean, online.entry.published)),
        ],
    ]
    return table(["beside", "measure", "ours", "theirs"], rows)


TIMES = ("foretrace_us", "peer_us")
