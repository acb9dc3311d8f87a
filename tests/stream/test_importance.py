"""Importance of columns: shares of the variance of predictions, by the command and estimators."""

import csv

import numpy as np
import pandas as pd
import pytest
from streams import FEW
from tiers import fast

from foretrace import stream
from foretrace.cli import _main as cli

LAGS = stream.ModelConfig(experts=("baselines", "lags"))


@pytest.fixture(scope="module")
def rows():
    """Return rows of y = 2 a + b of the row before, and of columns that do not count."""
    a, b, c = np.random.default_rng(0).normal(size=(3, 900))
    words = np.random.default_rng(1).choice(["u", "v"], 900)
    return pd.DataFrame({"a": a, "b": 50 * b, "c": c, "word": words, "y": 2 * a + np.roll(b, 1)})


@pytest.mark.full
def test_shares_are_the_parts_of_the_variance_also_of_earlier_rows(rows, tmp_path, capsys):
    source, run = tmp_path / "rows.csv", tmp_path / "run"
    rows.to_csv(source, index=False)
    stream.run(str(source), run, target="y", model=LAGS)
    capsys.readouterr()
    words = ["predict", str(run), str(source), "--importance", "--rows"]
    assert cli.main(words[:-1]) == 0
    found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    shares = {line["column"]: float(line["share"]) for line in found}
    assert list(shares) == ["a", "b", "c", "word", "y"]
    assert [shares["a"], shares["b"]] == pytest.approx([0.8, 0.2], abs=0.04)
    assert max(shares["c"], shares["word"]) < 1e-3
    assert shares["y"] < 4e-3  # earlier labels say of the past what the columns say
    assert cli.main([*words, "1"]) == 2
    assert "needs 2 rows or more, not 1" in capsys.readouterr().err


@pytest.mark.parametrize("kind", fast(["Classifier", "Regressor"]))
def test_an_estimator_tells_shares_and_learns_nothing(rows, kind):
    model = getattr(stream, kind)(model=FEW, member="word", features=8)
    x, y = rows[["a", "c", "word"]], (rows["a"] > 0) if kind == "Classifier" else rows["a"]
    assert model.feature_importance(x, y) == {}
    model.learn_many(x[:300], y[:300])
    before = model.predict_one({"a": 0.5, "word": "u"})
    shares = model.feature_importance(x[300:400], y[300:400])
    assert list(shares) == ["a", "c", "earlier labels"] and shares["a"] > 0.9
    assert sum(shares.values()) == pytest.approx(1)
    assert model.predict_one({"a": 0.5, "word": "u"}) == before
    with pytest.raises(ValueError, match="needs 2 rows or more, not 1"):
        model.feature_importance(x[:1], y[:1])
    with pytest.raises(ValueError, match="a feature is named 'earlier labels'"):
        model.feature_importance(x.rename(columns={"c": "earlier labels"}), y)
