"""Write the pages of results in `docs/` and `results/` from templates and committed records.

python -m benchmarks.pages
"""

from benchmarks import ledger
from benchmarks.pages import forecasting, learners, memory, paper, rules, streams, suite, yardsticks
from benchmarks.streams import figures

if __name__ == "__main__":
    for page in (forecasting, learners, memory, paper, rules, streams, suite, yardsticks):
        page.PAGE.write_text(page.text())
    found = ledger.read(ledger.RECORDS / "reach.jsonl")
    figures.save(figures.reach(found), ledger.ROOT / "docs" / "streams_compared" / "reach.png")
