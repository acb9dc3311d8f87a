"""An expert from outside of the package: alone, with late labels, members, and in resumed runs."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from streams import assert_same_run, kill_behind, quiet

import foretrace as ft
from foretrace.stream import AbstractExpert, ModelConfig, StreamConfig
from foretrace.stream.runs.predict import predictions

ALONE = ModelConfig(experts=("baselines",))


class Slope(NamedTuple):
    product: jnp.ndarray
    power: jnp.ndarray


class Sums(AbstractExpert):
    """The label is a factor times a fading sum of a number: a memory of its own."""

    outputs: int = eqx.field(static=True)

    @classmethod
    def of(cls, shape):
        return None if shape.classes else cls(shape.outputs)

    @property
    def names(self):
        return ("sums",)

    def init(self):
        return Slope(jnp.zeros(()), jnp.ones(()))

    def new_carry(self, learned):
        return jnp.zeros(())

    def take(self, learned, carry, features, has_row, *, waits):
        after = jnp.where(has_row, 0.9 * carry + features.row[1], carry)
        found = jnp.full((1, self.outputs), learned.product / learned.power * after)
        return found, after, after

    def label(self, learned, carry, memo, lesson):
        known = lesson.known.astype(memo.dtype)
        product = learned.product + known * memo * lesson.label[0]
        return Slope(product, learned.power + known * memo**2), carry


def table(rows=300):
    draw = np.random.default_rng(0)
    x, sums = draw.normal(size=rows), np.zeros(rows)
    for t in range(rows):
        sums[t] = 0.9 * sums[t - 1] + x[t]
    return pd.DataFrame({"x": x, "who": "a", "y": 3 * sums + 0.1 * draw.normal(size=rows)})


@pytest.mark.parametrize("options", [{}, {"delay": 5}, {"member": "who", "members": 2}], ids=str)
def test_it_is_learned_beside_the_others(options, tmp_path):
    chosen = {"target": "y", "task": "regression", "model": ALONE} | options
    result = ft.stream.run(table(), tmp_path / "run", experts={"sums": Sums}, **chosen)
    assert result.weights["sums"] > 0.5
    assert result.experts["sums"] < 0.5 * result.experts["mean"]


def test_a_run_with_it_goes_on_bit_for_bit_and_says_what_it_needs(tmp_path):
    table().to_csv(tmp_path / "a.csv", index=False)
    options = {"target": "y", "ignore": ("who",), "delay": 2, "model": ALONE}
    config = StreamConfig(str(tmp_path / "a.csv"), **options)
    mine = {"experts": {"sums": Sums}}
    quiet(config, tmp_path / "whole", **mine)
    kill_behind(config, tmp_path / "part", 120, **mine)
    with pytest.raises(ValueError, match=r"began with the experts \['sums'\] of its user's own"):
        quiet(config, tmp_path / "part", resume=True)
    quiet(config, tmp_path / "part", resume=True, **mine)
    assert_same_run(tmp_path / "whole", tmp_path / "part")


def test_estimators_take_it_and_leave_it_out_where_it_does_not_fit():
    pytest.importorskip("river")
    rows = table().to_dict("records")
    model = ft.stream.Regressor(model=ALONE, waiting=9, experts={"sums": Sums})
    errors = []
    for i, row in enumerate(rows):
        x = {"x": row["x"]}
        errors.append(abs(model.predict_one(x, id=i) - row["y"]))
        if i >= 5:
            model.learn_one(None, rows[i - 5]["y"], id=i - 5)
    assert np.mean(errors[-100:]) < 1.5
    clone = model.clone()
    assert clone.experts == {"sums": Sums}
    classes = ft.stream.Classifier(model=ALONE, experts={"sums": Sums})
    classes.learn_one({"x": 1.0}, "a")
    assert classes._intake.mixture.pure.left_out == ("sums",)


REFUSED = [
    ({"lags": Sums}, ValueError, "'lags' names an expert of foretrace"),
    ({"sums": dataclasses.dataclass}, TypeError, "expected a subclass of ft.stream.AbstractExpert"),
    (("sums",), TypeError, "expected a dictionary from name to class"),
]


@pytest.mark.parametrize(("experts", "error", "words"), REFUSED)
def test_what_is_no_expert_is_refused(experts, error, words):
    pytest.importorskip("river")
    with pytest.raises(error, match=words):
        ft.stream.Regressor(experts=experts)


def test_a_column_of_predictions_is_weighed_while_it_is_right_and_stands_aside_where_missing(
    tmp_path,
):
    draw = np.random.default_rng(0)
    y = draw.normal(size=800)
    given = np.where(np.arange(800) < 400, y + 0.1 * draw.normal(size=800), 10.0)
    given[50:400:3], given[700:] = np.nan, 1e6
    frame, shown = pd.DataFrame({"x": y[::-1], "other": given, "y": y}), []
    options = {"target": "y", "task": "regression", "model": ALONE, "expert_column": ("other",)}
    ft.stream.run(frame, tmp_path / "run", on_prediction=shown.append, rows=400, **options)
    errors = np.abs(np.array([row["y"] for row in shown[60:]], float) - y[60:400])
    there = ~np.isnan(given[60:400])
    assert errors[there].mean() < 0.2 and errors[~there].mean() < 1.1
    result = ft.stream.run(frame, tmp_path / "run", rows=800, resume=True, **options)
    assert result.weights["column other"] < 0.05 and result.scores["mae"] < 0.8
    frame.to_csv(tmp_path / "more.csv", index=False)
    for importance, count in ((False, 5), (True, 3)):
        asked = {"rows": 5, "importance": importance}
        more = predictions(tmp_path / "run", str(tmp_path / "more.csv"), **asked)
        assert len(list(more[1])) == count  # `other` is one of three columns
    model = ft.stream.Regressor(model=ALONE, expert_columns=["other"])
    for x, other, now in zip(frame["x"], given[:200], y, strict=False):
        row = {"x": x, "other": other}
        found = model.predict_one(row)
        model.learn_one(row, now)
    assert found == pytest.approx(float(shown[199]["y"]), abs=1e-9)
    with pytest.raises(ValueError, match="predictions of the target of its own row: name a --targ"):
        StreamConfig("a.csv", "y", horizon=2, expert_column=("other",))
