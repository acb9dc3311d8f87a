# %% [markdown]
# # Your own CSV
#
# After this page you can let foretrace learn from the rows of a table, see whether it beats simple
# guesses, and let it predict new rows. You need no knowledge of machine learning, and no settings.
#
# This page writes a small table `pump.csv` and learns it. Replace it by a file of your own. In a
# terminal, the commands of this page are:
#
# ```bash
# foretrace stream pump.csv --target fault --run-dir pump-run
# foretrace predict pump-run pump.csv --out answers.csv
# ```
#
# Below, the lines that begin with `run(` run such commands from Python.

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
# The table has the load and the temperature of a pump at every minute. A `fault` occurs five
# minutes after a minute in which the pump was hot and its load was high.

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
# only then learned. The scores are therefore those of rows that the model had not seen.

# %%
run("foretrace stream pump.csv --target fault --run-dir pump-run")

# %% [markdown]
# Look at the first table. *This run* must be better than *the last one known* and *the most
# frequent class*. If it is not, the rows contain no information about the target, or [something is
# wrong](../troubleshooting.md). The time of a row was measured on two cores shared with other
# work; [How fast is it?](../streams_compared.md#how-fast-is-it) has longer runs.
#
# ## See when it has learned
#
# The run directory holds the scores of every thousand rows as JSON lines. `foretrace report
# pump-run` draws them:

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
lines = [line for line in lines if "total" in line]
rows = [line["step"] for line in lines]
for key, name in (
    ("accuracy", "this run"),
    ("majority_accuracy", "most frequent class"),
):
    scores = [line[key] for line in lines]
    axes.plot(rows, scores, "o-")
    axes.annotate(name, (rows[-1], scores[-1] + 0.03), ha="right")
axes.set(
    title="After 1,000 rows, the run has learned the fault",
    xlabel="row",
    ylabel="accuracy since the last point",
    ylim=(0.7, 1.05),
)

# %% [markdown]
# ## Answer for new rows
#
# `foretrace predict` continues from the end of the run, and writes one line for each row of
# another file. This file need not have the column `fault`. (The example uses the same file again.)

# %%
run("foretrace predict pump-run pump.csv --rows 5 --out answers.csv")
print(Path("answers.csv").read_text())

# %% [markdown]
# ## Go on later
#
# You can stop a run with Ctrl-C at any moment. `foretrace resume` continues the run at the right
# row. When the file has grown, it continues with the new rows.
#
# Next: [Learn from a file or a pipe](../streams.md) explains late labels, forecasts, many sensors
# in one file, and pipes.
