"""`docs/forecasting.md`: our records on two public boards beside the published rows."""

from functools import partial

from benchmarks import ledger
from benchmarks.pages.template import bold_best, filled, table

PAGE = ledger.ROOT / "docs" / "forecasting.md"

PUBLISHED = {
    ("A", "ETTh2"): {
        "DLinear, DSOF": (0.365, 1.701, 3.082),
        "DLinear, DSOF without student": (0.365, 1.694, 3.015),
        "FITS, DSOF": (0.375, 1.757, 2.988),
        "iTransformer, DSOF": (0.384, 1.869, 3.465),
        "PatchTST, DSOF": (0.382, 1.925, 4.473),
        "OneNet, DSOF": (0.548, 2.363, 4.037),
        "FSNet, DSOF": (0.431, 3.114, 5.318),
    },
    ("A", "Exchange"): {"best of seven models with DSOF": (0.009, 0.093, 0.176)},
    ("B", "ETTh1"): {
        "TimeFilter, frozen": (0.1201, 0.3159, 0.3654),
        "TimeFilter + PROCEED": (0.1199, 0.3118, 0.3506),
        "TimeFilter + ADAPT-Z": (0.1107, 0.2942, 0.3431),
        "TimeKAN + ADAPT-Z": (0.1177, 0.3042, 0.3431),
    },
    ("B", "ETTh2"): {
        "TimeFilter, frozen": (0.0666, 0.1712, 0.2246),
        "TimeFilter + PROCEED": (0.0660, 0.1702, 0.2191),
        "TimeFilter + ADAPT-Z": (0.0628, 0.1607, 0.2153),
        "TimeKAN + ADAPT-Z": (0.0628, 0.1667, 0.2103),
    },
}
"""Mean squared error at 1, 24 and 48 steps. The page names the sources."""

HORIZONS = (1, 24, 48)


def text(path=ledger.RECORDS / "forecasting.jsonl"):
    """Return the page.

    Args:
        path: file of the records.
    """
    found = {tuple(record["cell"].values()): record["found"] for record in ledger.read(path)}
    return filled("forecasting", {"_".join(of): partial(scores, found, *of) for of in PUBLISHED})


def scores(found, board, name):
    """Return the table of a data set: ours first, the best of each column in bold."""
    ways = dict.fromkeys(way for b, n, _, way in found if (b, n) == (board, name))
    rows = {
        way: [found.get((board, name, h, way), {}).get("mse") for h in HORIZONS]
        for way in sorted(ways, key=lambda way: way != "foretrace")
    }
    times = [found.get((board, name, HORIZONS[-1], way), {}).get("us a value", "") for way in rows]
    published = PUBLISHED[board, name]
    rows |= {f"*{way}*": list(values) for way, values in published.items()}
    columns = [bold_best(values, "{:g}".format) for values in zip(*rows.values(), strict=True)]
    lines = zip(rows, *columns, [*map(str, times), *[""] * len(published)], strict=True)
    return table(["model", "1 step", "24", "48", "µs a value at 48"], lines)
