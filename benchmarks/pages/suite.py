"""`results/suite.md`: every rule on five streamed tasks, seed by seed."""

from statistics import mean

from benchmarks.pages.template import bold_best, grouped, percent, records, table

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


def by_rule(task, lines=None):
    """Return the results of a task by rule, of the runs with most batches.

    Args:
        task: name of the task.
        lines: lines of the record; the committed ones if not given.
    """
    lines = records("suite") if lines is None else lines
    mine = [(line["cell"], line["found"]) for line in lines if line["cell"]["task"] == task]
    most = max((cell["batches"] for cell, _ in mine), default=0)
    found = grouped((one for one in mine if one[0]["batches"] == most), "rule")
    return {name: found[name] for name in ORDER if name in found}


def scores(task, lines=None):
    """Return the table of a task: scores, and the cost of a step of one stream."""
    rules = by_rule(task, lines)
    if not rules:
        return "*Not measured yet.*"
    cosines = any("cosine" in found for found in rules[next(iter(rules))])
    head = ["", "seeds", *SCORES[task].values(), "memory, KiB", "10³ operations", "CPU time"]
    lines = []
    base = mean_of(rules[ONLINE], "cpu_us_per_step") if ONLINE in rules else None
    columns = [_scores(key, rules.values()) for key in SCORES[task]]
    for (name, found), *shown in zip(rules.items(), *columns, strict=True):
        one = found[0]
        time = f"{mean_of(found, 'cpu_us_per_step') / base:.1f}" if base else ""
        costs = [f"{one['memory_kib']:,.0f}", f"{one['operations'] / 1e3:,.0f}", time]
        row = [name + _steps(one), str(len(found)), *shown, *costs]
        lines.append(row + [_cosine(found)] * cosines)
    if task == "heart":
        one = rules[next(iter(rules))][0]
        plain = {"last_value": "the last value", "linear": "linear regression on the last 3 s"}
        for key, name in plain.items():
            values = (f"{one[key][score]:.3f}" for score in SCORES[task])
            lines.append([name, "", *values, "", "", ""])
    return table(head + ["cosine with BPTT: start, end"] * cosines, lines)


def mean_of(found, key):
    """Return the mean of one of the results over seeds."""
    return mean(one[key] for one in found)


def _scores(key, rules):
    """Return each rule's mean of a score, the best in bold, and the scores of several seeds."""
    best, shown = (max, percent) if key == "accuracy" else (min, "{:.3f}".format)
    means = bold_best([mean_of(found, key) for found in rules], shown, best)
    seeds = (", ".join(shown(one[key]) for one in found) for found in rules)
    return [
        text + (f" ({each})" if len(found) > 1 else "")
        for text, each, found in zip(means, seeds, rules, strict=True)
    ]


def _steps(one):
    for key in ("reach", "chunk"):
        if key in one:
            return f" ({one[key]} steps)"
    return ""


def _cosine(found):
    pairs = [one["cosine"] for one in found if one.get("cosine") and one["cosine"][0] is not None]
    return ", ".join(f"{mean(values):.2f}" for values in zip(*pairs, strict=True)) if pairs else ""
