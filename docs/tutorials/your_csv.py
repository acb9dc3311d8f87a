# %% [markdown]
# # Your own CSV
#
# After this page you can let foretrace learn from the rows of a table, see whether it beats simple
# guesses, and let it answer for new rows. No machine learning is needed, and no settings.
#
# This page writes a small table, so that it runs as it stands. Put the name of your own file in its
# place. In a terminal, with a file `pump.csv` of your own, the commands of this page are:
#
# ```bash
# foretrace stream pump.csv --target fault --run-dir pump-run
# foretrace predict pump-run pump.csv --out answers.csv
# ```
#
# Below, the lines that begin with `run(` are such commands, run from Python.

# %%
import csv
import json
import shlex
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from foretrace.cli import main


def run(command):
    """Run a command of foretrace, as a terminal does."""
    assert main(shlex.split(command)[1:]) == 0


# %% [markdown]
# ## The table
#
# A pump: its load and temperature every minute. A `fault` comes five minutes after the load was
# high while it was hot.

# %%
random = np.random.default_rng(0)
load, heat = random.normal(size=4000), random.normal(size=4000)
fault = np.roll((load > 0.3) & (heat > 0), 5)
with open("pump.csv", "w", newline="") as file:
    writer = csv.writer(file)
    writer.writerow(["load", "temperature", "fault"])
    writer.writerows(
        zip(
            load.round(3),
            (20 + 5 * heat).round(2),
            np.where(fault, "yes", "no"),
            strict=True,
        )
    )
print(Path("pump.csv").read_text()[:90])

# %% [markdown]
# ## Learn from it
#
# Only `--target`, the column to predict, is needed. Every row is predicted first, then scored, and
# only then learned, so the scores belong to rows that the model had not seen.

# %%
run("foretrace stream pump.csv --target fault --run-dir pump-run")

# %% [markdown]
# The last lines are what to look at. *This run* must be better than *the last one known*
# and *the most frequent class*; if it is not, the rows say nothing about the target, or [something
# is wrong](../troubleshooting.md). The time of a row was measured here on two cores shared with much
# other work; [How fast is it?](../streams_compared.md#how-fast-is-it) has longer runs.
#
# ## See when it has learned
#
# The run directory holds the scores of every thousand rows as JSON lines; `foretrace report pump-run` draws them.

# %%
lines = [
    json.loads(line) for line in Path("pump-run/metrics.jsonl").read_text().splitlines()
]
scores = [line["total"] for line in lines if "total" in line]
print(
    f"accuracy {scores[-1]['accuracy']:.1%},",
    f"the most frequent class {scores[-1]['majority_accuracy']:.1%}",
)

figure, axes = plt.subplots(figsize=(7, 2.6))
rows = [line["step"] for line in lines if "total" in line]
axes.plot(rows, [s["accuracy"] for s in scores], "o-", label="this run")
axes.plot(
    rows, [s["majority_accuracy"] for s in scores], "o--", label="most frequent class"
)
axes.set(xlabel="row", ylabel="accuracy so far")
axes.legend()

# %% [markdown]
# ## Answer for new rows
#
# `foretrace predict` continues from the end of the run and writes one line for each row of another
# file. The column `fault` may be missing there. (Here the same file is used again.)

# %%
run("foretrace predict pump-run pump.csv --rows 5 --out answers.csv")
print(Path("answers.csv").read_text())

# %% [markdown]
# ## Go on later
#
# Stop a run with Ctrl-C at any moment. `foretrace resume` continues at the right row;
# when the file has grown, at the new rows.
#
# Next: [all that a stream can do](../streams.md): labels that come late, forecasts, many sensors in
# one file, pipes.
