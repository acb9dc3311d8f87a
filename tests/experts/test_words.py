"""The experts for words: naive Bayes beside its formula, and texts with very many words."""

import jax
import numpy as np
import pytest

from foretrace import stream
from foretrace.stream.experts.bayes import Bayes
from foretrace.stream.experts.expert import Features, Lesson
from foretrace.stream.experts.settings import TUNED
from foretrace.stream.model.model_config import ModelConfig


@pytest.mark.usefixtures("standard_promotion")
def test_naive_bayes_is_its_formula_and_learns_nothing_without_a_label():
    draw, expert, prior = np.random.default_rng(0), Bayes(6, 4), TUNED.word_prior
    texts, labels = draw.random((30, 6)) < 0.4, draw.integers(0, 3, 30)
    texts[-1, 0] = True
    with jax.enable_x64(True):
        state, nothing = expert.init(), Features(*[None] * len(Features._fields))
        for there, label in zip(texts, labels, strict=True):
            row = nothing._replace(words=(there * 0.3, np.arange(6)), num_classes=np.int32(3))
            lesson = Lesson(row, None, np.eye(4)[label], np.array(True), np.array(True))
            unknown = expert.learn(state, lesson._replace(known=np.array(False)))
            jax.tree.map(np.testing.assert_array_equal, unknown, state)
            before, state = state, expert.learn(state, lesson)
        found = np.array(expert.predict(before, row))
    counts = np.array([texts[:-1][labels[:-1] == c].sum(0) for c in range(3)]).T
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / counts.sum()
    evidence = texts[-1] @ np.log((counts + prior) / (expected + prior))
    scores = np.stack([evidence, evidence / np.sqrt(texts[-1].sum())])
    scores = np.exp(scores + np.log(np.bincount(labels[:-1], minlength=3) + 0.5))
    np.testing.assert_allclose(found[:, :3], scores / scores.sum(1, keepdims=True), rtol=1e-9)
    assert (found[:, 3] == 0).all()


def test_of_a_text_with_many_words_the_most_frequent_ones_are_learned():
    draw, right = np.random.default_rng(0), []
    model = stream.Classifier(model=ModelConfig(experts=("baselines", "words")))
    others = " ".join("".join(one) for one in draw.choice([*"abcdefghij"], (1500, 6)))
    for label in draw.integers(0, 2, 40):
        text = others + (" up" if label else " down") * 3
        right.append(model.predict_one({"text": text}) == label)
        model.learn_one({"text": text}, label)
    assert np.mean(right[20:]) > 0.9
