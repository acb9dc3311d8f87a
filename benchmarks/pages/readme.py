"""The table of the README that compares with others, from the committed records."""

from benchmarks.pages import paper, streams, suite, yardsticks
from benchmarks.pages.template import found_rows, percent, results, table

STREAMING = "best streaming learner"
STREAMERS = "best of [Farr et al. 2026](https://arxiv.org/abs/2605.24709)"
CUE = {"length": 64, "steps": 150_000}


def text():
    """Return the table; the boards on which we are behind come first."""
    boards, elec2 = yardsticks.scores(), streams.best_of("elec2", first=False)
    nab = boards["NAB", "standard profile"]
    times = {row["foretrace"]: row for row in found_rows("peer_times", beside="braintrace")}
    chunks = times["chunks of 16"]
    braintrace = [f"{chunks[key]:,.0f}" for key in ("foretrace_us", "peer_us")]
    online = paper.cells("table1", "paper")["online", "LRU x 4"]
    losses = map(paper.loss, (online.mean, online.entry.published))
    streamed = copy()
    rows = [
        ["ARTime", "score on NAB, higher", f"{nab['foretrace']:.1f}", f"{nab['ARTime']:.1f}"],
        popgym("CountRecall", boards["POPGym", "CountRecall"]),
        river("bananas", boards["river", "bananas"]),
        ["Zucchet et al., Table 1", "training loss on copy of 48 steps, lower", *losses],
        ["deep-river, our *network*", "accuracy on elec2, higher", *elec2_of(elec2, "network")],
        streamed[0],
        cue(),
        popgym("RepeatPrevious", boards["POPGym", "RepeatPrevious"]),
        streamed[1],
        ["deep-river, best model", "accuracy on elec2, higher", *elec2_of(elec2, "foretrace")],
        [f"{chunks['peer']}, chunks of 16", "µs for a gradient of a time step, lower", *braintrace],
    ]
    return table(["compared with", "measure, which is better", "ours", "theirs"], rows)


def elec2_of(found, ours):
    """Return our score on the whole of elec2 and deep-river's."""
    return [percent(found[way]) for way in (ours, "deep-river")]


def popgym(task, found):
    """Return the row of a task of POPGym."""
    scores = [f"{found[way]:.2f}" for way in ("foretrace", STREAMING)]
    return [STREAMERS, f"return on POPGym's {task}, higher", *scores]


def copy():
    """Return the rows of the streamed copy task: the strongest window, and truncated learning."""
    rules = suite.by_rule("copy")
    ours = percent(suite.mean_of(rules[suite.ONLINE], "accuracy"))
    others = {
        "BPTT over the last 40 steps": "rolling BPTT, equal memory",
        "the rule `TRUNCATED`": "truncated",
    }
    theirs = {name: percent(suite.mean_of(rules[way], "accuracy")) for name, way in others.items()}
    return [
        [name, "bits of streamed copy recalled, higher", ours, score]
        for name, score in theirs.items()
    ]


def cue():
    """Return the row of an agent that needs a cue: the window that holds it."""
    cells = {"rl": {"task": "chain", "rule": "online"}, "rl_baselines": {"part": "windows"}}
    cells["rl_baselines"] |= {"environment": "chain", "reach": 65}
    found = [results(name, **CUE, **cell)[0][1] for name, cell in cells.items()]
    shown = [f"{one['mean']:.2f} ({min(one['each']):.2f})" for one in found]
    return ["BPTT over the last 65 steps", "return, cue 64 steps back, higher", *shown]


def river(stream, found):
    """Return the row of a stream of river's own board."""
    theirs = max((way for way in found if not way.startswith("foretrace")), key=found.get)
    shown = [percent(found[way]) for way in ("foretrace", theirs)]
    return [f"river, {theirs}", f"accuracy on {stream}, higher", *shown]
