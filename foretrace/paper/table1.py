"""Table 1: training loss on the copy task by architecture and rule, with HYBRID and depth."""

from foretrace._options.cells import GRU, LRU, LinearRNN
from foretrace._options.network import NetworkConfig
from foretrace.experiment._report import TABLE_1
from foretrace.paper._copy import sizes
from foretrace.paper._experiment import REST, RULES, WITHIN_CHUNKS, Entry, Experiment, Scale

NETWORKS = {
    "LRU x 4": NetworkConfig(depth=4, model_size=128, cell=LRU(64), dropout=0.1),
    "linear RNN x 4": NetworkConfig(depth=4, model_size=146, cell=LinearRNN(64), dropout=0.1),
    "GRU x 1": NetworkConfig(
        depth=1, model_size=134, cell=GRU(), glu=False, dropout=0.1, readout_size=1072
    ),
    "GRU x 4": NetworkConfig(depth=4, model_size=91, cell=GRU(), dropout=0.1),
}
"""The columns, with 268,430, 267,956, 269,488 and 270,011 parameters."""

PUBLISHED = {
    "LRU x 4": [TABLE_1[rule] for rule in RULES],
    "linear RNN x 4": [5.82e-1, 1.07e-4, 5.81e-1, 6.20e-1],
    "GRU x 1": [3.16e-1, 2.61e-1, 6.20e-1, 6.26e-1],
    "GRU x 4": [3.27e-1, 1.94e-1, 6.49e-1, 6.55e-1],
}
"""Mean of 5 seeds under each rule."""

CHEAP = "credit depth 2, encoder"
SAMPLED, BY_MEMORY = "(depth=2, groups=1, modules=", "(depth=2, groups=1, by_memory=True, modules="
BEYOND: tuple[tuple[str, str, int | None, str], ...] = (
    ("hybrid, chunk 12", "hybrid", 12, WITHIN_CHUNKS),
    ("hybrid, chunk 16", "hybrid", 16, WITHIN_CHUNKS),
    ("hybrid, chunk 24", "hybrid", 24, WITHIN_CHUNKS),
    ("online, credit depth 1", "online(depth=1)", None, ""),
    ("online, credit depth 2", "online(depth=2)", None, ""),
    ("online, credit depth 3", "online(depth=3)", None, ""),
    ("online, credit depth 4", "online(depth=4)", None, "nothing left out"),
    ("online, credit depth 2, encoder", "online(depth=2, groups=1)", None, REST),
    ("online, credit depth 4, encoder", "online(depth=4, groups=1)", None, REST),
    ("online, credit depth 4, encoder and first block", "online(depth=4, groups=2)", None, REST),
    (f"online, {CHEAP}, 8 modules", f"online{SAMPLED}8)", 16, REST),
    (f"online, {CHEAP}, 16 modules", f"online{SAMPLED}16)", 16, REST),
    (f"online, {CHEAP}, 8 modules by memory", f"online{BY_MEMORY}8)", 16, REST),
    (f"online, {CHEAP}, 24 modules by memory", f"online{BY_MEMORY}24)", 16, REST),
    (f"hybrid, {CHEAP}, 8 modules, chunk 16", f"hybrid{SAMPLED}8)", 16, WITHIN_CHUNKS),
)
"""Rows for LRU x 4 beyond the paper: row, rule, number of steps in a chunk, note."""

CPU = "4 epochs instead of 25, 2 seeds instead of 5."
SCALES = sizes((0, 1), CPU, tuple(2**i * 1e-3 for i in range(6)))


def experiment(name: str, scale: Scale) -> Experiment:
    """Return Table 1: the paper's 16 cells, and HYBRID and credit depth for the LRU."""
    size = SCALES[scale]
    entries = []
    for column, network in NETWORKS.items():
        for rule, published in zip(RULES, PUBLISHED[column], strict=True):
            config, is_exact = size.config(network, rule), isinstance(network.cell, LRU)
            note = "corrected" if rule == "online" and not is_exact else ""
            entries.append(Entry(rule, column, config, published, size.rates, note))
        if column == "LRU x 4":
            entries += [
                Entry(row, column, size.config(network, rule, chunk=c), None, size.rates, note)
                for row, rule, c, note in BEYOND
            ]
    return size.experiment(name, "Table 1: final training loss on the copy task", scale, entries)
