# %% [markdown]
# # Forecasting with pandas
#
# After this page you can forecast a pandas series, let the forecaster learn new values as they
# arrive, and compare its forecasts with simple ones.
#
# The forecaster is an estimator of [sktime](https://www.sktime.net), and learns value by value.
# Install it with `pip install '.[sktime]'`. By default, it is a mixture of cheap models without a
# recurrent network of the library. Replace `load` by your own series.

# %%
import foretrace as ft
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

random = np.random.default_rng(0)
index = pd.period_range("2026-01-01", periods=1200, freq="h")
hour, warmth = np.arange(1200), np.cumsum(random.normal(size=1200)) / 10
load = 50 + 10 * np.sin(2 * np.pi * hour / 24) - 2 * warmth + random.normal(size=1200)
frame = pd.DataFrame({"load": load, "temperature": 15 + warmth}, index=index)
print(frame.head(3).round(2))

# %% [markdown]
# ## Fit and forecast
#
# `horizon` is the number of steps that a forecast has. Other columns go into `X`; each row of `X`
# is learned together with the value of its hour. The forecast does not use the temperature of
# future hours.

# %%
y, X = frame["load"], frame[["temperature"]]
model = ft.stream.SktimeForecaster(horizon=24)
model.fit(y[:1000], X[:1000])
steps = range(1, 25)
forecast = model.predict(steps, X[1000:1024])
interval = model.predict_interval(steps, X[1000:1024], coverage=0.9)
print(forecast.head(3).round(1))

# %%
figure, axes = plt.subplots(figsize=(7, 2.8))
low, high = interval.to_numpy().T
axes.plot(range(960, 1024), y[960:1024], label="load")
axes.plot(range(1000, 1024), forecast, label="forecast")
axes.fill_between(range(1000, 1024), low, high, alpha=0.2, label="90 % interval")
axes.set(title="The forecast of a day follows the load", xlabel="hour", ylabel="load")
axes.set_xlim(960, 1023)
axes.legend(ncols=3, loc="upper left", fontsize=8)
axes.set_ylim(None, high.max() + 6)

# %% [markdown]
# ## Go on learning
#
# `update` learns the values that have arrived, each of them once. `fit(a)` followed by `update(b)`
# gives the same state, bit for bit, as `fit` with both, and memory does not grow. In this example,
# a new forecast is made every 24 hours.

# %%
errors, last_errors, day_errors = [], [], []
for now in range(1000, 1176, 24):
    if now > 1000:
        model.update(y[now - 24 : now], X[now - 24 : now])
    coming = y[now : now + 24].to_numpy()
    ahead = model.predict(steps, X[now : now + 24]).to_numpy()
    errors.append(np.abs(ahead - coming).mean())
    last_errors.append(np.abs(y.iloc[now - 1] - coming).mean())
    day_errors.append(np.abs(y[now - 24 : now].to_numpy() - coming).mean())
print("mean absolute error of 24 hours ahead")
print(f"foretrace            {np.mean(errors):.2f}")
print(f"the same hour before {np.mean(day_errors):.2f}")
print(f"the last value       {np.mean(last_errors):.2f}")

# %% [markdown]
# Use a forecaster only if it beats both simple forecasts.
#
# ## Score a whole frame
#
# `ft.stream.run` does not need sktime. It predicts each row of a frame, scores the prediction when
# the label is known, and then learns the row. With `horizon`, the prediction of a row is a
# forecast of the rows that follow, and `result.forecast` is the forecast after the last row.

# %%
rows = []
result = ft.stream.run(
    frame.reset_index(drop=True),
    "run",
    target="load",
    horizon=24,
    on_prediction=rows.append,
)
predicted = pd.DataFrame(rows)
print(
    predicted[["row", "load+1", "load+1_low", "load+1_high", "load+24"]]
    .tail(2)
    .round(1)
)
print(
    f"error {result.scores['mae']:.2f}, in the interval {result.scores['coverage']:.0%}"
)
print([round(row["load"], 1) for row in result.forecast[:4]])

# %% [markdown]
# ## The same from a file
#
# ```bash
# foretrace stream load.csv --target load --horizon 24
# ```
#
# This command predicts the next 24 values at every row, and scores each prediction when its values
# arrive. It compares the mean absolute error with the errors of the last value and of the mean.
# `foretrace predict RUN load.csv` predicts new rows.
#
# In a river pipeline, use [`ft.stream.Forecaster`](../streams.md#in-river). The forecaster does
# not notice a gap in the index, so give missing values as NaN. Next: [forecasts
# compared](../forecasting.md) with published ones.
