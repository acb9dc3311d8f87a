"""Write the pages of results in `docs/` and `results/` from templates and committed records.

python -m benchmarks.pages
"""

from benchmarks import ledger
from benchmarks.pages.template import PAGES, filled

if __name__ == "__main__":
    for name, page in PAGES.items():
        (ledger.ROOT / page).write_text(filled(name))
