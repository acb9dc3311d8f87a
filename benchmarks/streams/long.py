"""Long streams, progressive validation: foretrace without peers.

FORETRACE_DATA=... python -m benchmarks.streams.long --rows 50000
"""

from benchmarks import ledger
from benchmarks.streams.real import MIXTURES, network
from benchmarks.streams.rows import names, read

MEDIUM = {"size": "small", "depth": 3, "model_size": 64}
WAYS = MIXTURES | {"network alone, small": {"size": "small"}, "network alone, medium": MEDIUM}


def cells(streams=("long",), rows=20_000):
    """Return the cells: every way on each stream.

    Args:
        streams: names of streams, or of groups of them.
        rows: first rows of each stream; 0 for all.
    """
    return ledger.grid(stream=names(streams), way=WAYS, rows=rows)


def measure(cell):
    """Return the scores of a cell."""
    count = sum(1 for _ in read(cell["stream"], cell["rows"] or 10**9))
    return network(cell, count, WAYS[cell["way"]])


if __name__ == "__main__":
    ledger.run(__doc__, "long_streams", cells, measure)
