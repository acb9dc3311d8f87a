"""Write the pages of results in `docs/` and `results/` from templates and committed records.

    python -m benchmarks.pages

Tables of every run stay in `results/`; their generators are named there.
"""

from benchmarks.pages import memory, paper, rules, streams

if __name__ == "__main__":
    for page in (memory, paper, rules, streams):
        page.PAGE.write_text(page.text())
