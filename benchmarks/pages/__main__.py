"""Write the pages of results in `docs/` from the templates here and the committed records.

    python -m benchmarks.pages

Tables of every run stay in `results/`; their generators are named there.
"""

from benchmarks.pages import paper, rules, streams

if __name__ == "__main__":
    for page in (paper, rules, streams):
        page.PAGE.write_text(page.text())
