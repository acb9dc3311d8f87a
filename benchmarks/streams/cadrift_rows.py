"""Rows of CaDrift's graphs, for `cadrift.py`; runs in the generator's own environment.

    PYTHONPATH=.../CaDrift .../python benchmarks/streams/cadrift_rows.py FOLDER

The generator is https://github.com/eduardovlb/CaDrift (MIT), commit ccd7ca19, with the versions of
its `requirements.txt`. Standard library, pandas and CaDrift only.
"""

import random
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from DAG_Utils import build_er_dag

GRAPHS, ROWS = 10, 4_000
DRIFTS = {800: "real", 1_600: "virtual", 2_400: "severe", 3_200: "recurrent"}


def rows(seed):
    """Return the rows of a graph as the generator's own script builds it, with four drifts."""
    graph, _ = build_er_dag(
        20, 0.3, ensure_label_parents=False, n_confounders=2, create_confounder=True, seed=seed
    )
    # The generator draws the same numbers for every graph.
    random.seed(seed)
    np.random.seed(seed)
    return graph.generate(
        ROWS,
        intervention_prob=0,
        drift_points=list(DRIFTS),
        drift_sizes=[1] * len(DRIFTS),
        drift_types=list(DRIFTS.values()),
        drift_types_time=["abrupt"] * len(DRIFTS),
        missing_prob=0,
    )


if __name__ == "__main__":
    place, seed = Path(sys.argv[1]), 0
    place.mkdir(parents=True, exist_ok=True)
    while len(list(place.glob("*.csv"))) < GRAPHS:
        found = pd.DataFrame(rows(seed))
        # There is nothing to learn in a label that never changes.
        if found["y"].nunique() > 1:
            found.to_csv(place / f"{seed}.csv", index=False)
        seed += 1
