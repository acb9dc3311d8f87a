"""Write the pages of results in `docs/` and `results/` from templates and committed records.

python -m benchmarks.pages
"""

from benchmarks.pages import forecasting, learners, memory, paper, rules, streams, suite, yardsticks

if __name__ == "__main__":
    for page in (forecasting, learners, memory, paper, rules, streams, suite, yardsticks):
        page.PAGE.write_text(page.text())
