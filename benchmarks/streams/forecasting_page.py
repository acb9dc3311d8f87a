"""The page of the forecasting boards: our records beside the published rows."""

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
TITLES = {"A": "Board A: 20 % training, 5 % validation, 75 % test", "B": "Board B: 60, 10 and 30 %"}
TEXT = """# Forecasting boards

- **Board A**: with nothing set, foretrace is ahead of every published row on ETTh2, and level with
  the last value on Exchange, which no published model beats.
- **Board B**: foretrace is behind on both data sets. Networks trained on the first 60 % of the rows
  lead, and least squares on 96 differences is closer to them.

Two public protocols of online forecasting. At each row the next H rows of all columns are
forecast. A value may be used once it has been seen: a forecast H rows ahead is learned from H rows
later. The score is the mean squared error of standardised columns over all test windows, steps and
columns. **foretrace** is `ft.stream.Forecaster(horizon=H, member="column")` with nothing else set.
The rows in italics are published ones; all others come from

```bash
FORETRACE_DATA=... python -m benchmarks.streams.forecasting
```

Nothing was chosen on test rows. A test changes the future and sees that no forecast changes.
"""
SOURCES = """
Sources: board A is the protocol of DSOF (ICLR 2025, Tables 2 and 3). There the first rows of ETTh2
(14,400) are used; on Exchange the score begins at row 1,897, the first test row. Board B is the
protocol of ADAPT-Z (ICLR 2026, rebuttal page): the first target is row ⌊.7 n⌋ + 96. Time is CPU
time of one core for each value of each column, learning included.
"""


def page(records):
    """Return the page as Markdown."""
    found = {tuple(r["cell"].values()): r["found"] for r in records}
    parts = [TEXT]
    for board, title in TITLES.items():
        parts.append(f"\n## {title}\n")
        for (of, name), published in PUBLISHED.items():
            if of == board:
                parts.append(f"\n### {name}\n\n{table(found, board, name, published)}")
    return "".join([*parts, SOURCES])


def table(found, board, name, published):
    """Return the table of a data set: ours first, the best of each column in bold."""
    ways = dict.fromkeys(way for b, n, _, way in found if (b, n) == (board, name))
    rows = [
        (
            way,
            [found.get((board, name, h, way), {}).get("mse") for h in HORIZONS],
            slowest(found, board, name, way),
        )
        for way in sorted(ways, key=lambda way: way != "foretrace")
    ]
    rows += [(f"*{way}*", list(values), "") for way, values in published.items()]
    best = [
        min(values[i] for _, values, _ in rows if values[i] is not None)
        for i in range(len(HORIZONS))
    ]
    lines = ["| model | 1 step | 24 | 48 | µs a value at 48 |\n|---|---|---|---|---|\n"]
    for way, values, time in rows:
        cells = [
            "" if v is None else f"**{v:g}**" if v == b else f"{v:g}"
            for v, b in zip(values, best, strict=True)
        ]
        lines.append(f"| {' | '.join([way, *cells, str(time)])} |\n")
    return "".join(lines)


def slowest(found, board, name, way):
    """Return the time of a value at the longest horizon."""
    return found.get((board, name, HORIZONS[-1], way), {}).get("us a value", "")
