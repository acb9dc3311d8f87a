"""`results/suite.md`: every rule on five streamed tasks, seed by seed."""

from functools import partial
from statistics import mean

from benchmarks import ledger
from benchmarks.pages.template import filled, percent, table

PAGE = ledger.ROOT / "results" / "suite.md"
ONLINE = "online (the paper's rule)"
ORDER = [
    "spatial",
    "truncated",
    "immediate derivative, RMSprop",
    ONLINE,
    "HYBRID",
    "d = 2, encoder, 8 modules",
    "d = 2, encoder, 8 modules by memory",
    "d = 1",
    "BPTT in chunks",
    "BPTT in chunks, equal memory",
    "rolling BPTT, equal operations",
    "rolling BPTT, equal memory",
]
SCORES = {
    "copy": {"loss": "test loss, nats a bit", "accuracy": "bits recalled"},
    "digits": {"loss": "test loss, nats", "accuracy": "test accuracy"},
    "text": {"bits_per_byte": "bits per byte, last tenth", "bits_per_byte_in_all": "in all"},
    "randman": {"loss": "test loss, nats", "accuracy": "test accuracy"},
    "heart": {
        "nrmse": "nRMSE, mean of the second",
        "nrmse_first": "0.03 s ahead",
        "nrmse_last": "1 s ahead",
    },
}


def text(path=ledger.RECORDS / "suite.jsonl"):
    """Return the page.

    Args:
        path: file of the records.
    """
    records = ledger.read(path)
    return filled("suite", {task: partial(scores, records, task) for task in SCORES})


def scores(records, task):
    """Return the table of a task: scores, and the cost of a step of one stream."""
    mine = [r for r in records if r["cell"]["task"] == task]
    most = max((r["cell"]["batches"] for r in mine), default=0)
    mine = [r for r in mine if r["cell"]["batches"] == most]
    rules = {
        name: found
        for name in ORDER
        if (found := [r["found"] for r in mine if r["cell"]["rule"] == name])
    }
    if not rules:
        return "*Not measured yet.*"
    cosines = any("cosine" in found for found in rules[next(iter(rules))])
    head = ["", "seeds", *SCORES[task].values(), "memory, KiB", "10³ operations", "CPU time"]
    lines = []
    base = _mean(rules[ONLINE], "cpu_us_per_step") if ONLINE in rules else None
    best = {
        key: _best(key, [_mean(found, key) for found in rules.values()]) for key in SCORES[task]
    }
    for name, found in rules.items():
        one = found[0]
        shown = [_score(key, found, best[key]) for key in SCORES[task]]
        time = f"{_mean(found, 'cpu_us_per_step') / base:.1f}" if base else ""
        costs = [f"{one['memory_kib']:,.0f}", f"{one['operations'] / 1e3:,.0f}", time]
        row = [name + _steps(one), str(len(found)), *shown, *costs]
        lines.append(row + [_cosine(found)] * cosines)
    if task == "heart":
        one = rules[next(iter(rules))][0]
        for name, key in {
            "the last value": "last_value",
            "linear regression on the last 3 s": "linear",
        }.items():
            values = (f"{one[key][score]:.3f}" for score in SCORES[task])
            lines.append([name, "", *values, "", "", ""])
    return table(head + ["cosine with BPTT: start, end"] * cosines, lines)


def _mean(found, key):
    return mean(one[key] for one in found)


def _best(key, values):
    return max(values) if key == "accuracy" else min(values)


def _score(key, found, best):
    def shown(value):
        return percent(value) if key == "accuracy" else f"{value:.3f}"

    said = shown(value := _mean(found, key))
    said = f"**{said}**" if value == best else said
    return said + (f" ({', '.join(shown(one[key]) for one in found)})" if len(found) > 1 else "")


def _steps(one):
    for key in ("reach", "chunk"):
        if key in one:
            return f" ({one[key]} steps)"
    return ""


def _cosine(found):
    pairs = [one["cosine"] for one in found if one.get("cosine") and one["cosine"][0] is not None]
    return ", ".join(f"{mean(values):.2f}" for values in zip(*pairs, strict=True)) if pairs else ""
