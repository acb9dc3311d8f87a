"""The river estimators: river's own checks, Ctrl-C, and where there is no river."""

import os
import re
import signal
import sys
import threading
import warnings

import numpy as np
import pytest
from river import checks
from streams import FEW
from test_estimator_laws import MODELS as LEARNING
from test_estimator_laws import rows

import foretrace as ft
from foretrace.stream.model.state import network_in
from foretrace.stream.python import river as stream

MODELS = {
    "classifier": stream.Classifier(model=FEW),
    "regressor": stream.Regressor(model=FEW),
    "forecaster": stream.Forecaster(model=FEW),
}


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", MODELS)
def test_rivers_own_checks(name):
    pytest.importorskip("sklearn")  # river's checks import it, whatever they check
    for check in checks.yield_checks(MODELS[name]):
        model = MODELS[name].clone()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # river leaves its data files open
            check(model)
        assert model._unit_test_skips() == set()


@pytest.mark.program
def test_ctrl_c_at_any_moment_leaves_a_model_that_goes_on(request):
    # Whoever starts the tests in the background may have SIGINT ignored: the loop below would never
    # end.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    model, table = LEARNING["network"](), list(rows(30))
    for x, y in table:
        model.learn_one(x, y)
    rng, caught = np.random.default_rng(0), 0
    while caught < 60:
        timer = threading.Timer(float(rng.uniform(0, 0.01)), os.kill, (os.getpid(), signal.SIGINT))
        try:
            timer.start()
            while True:
                for x, y in table:
                    model.learn_one(x, y)
        except KeyboardInterrupt:
            caught += 1
        assert sum(model.predict_proba_one(table[0][0]).values()) == pytest.approx(1)
        # Rows are learned as a whole: what the host has counted and what the network has learned
        # agree.
        state = network_in(model._intake.mixture.packing.unpack(model._state))
        assert int(state.learner.step) == model._intake.target.num_labels


def test_without_river_the_error_says_how_to_install_it(monkeypatch):
    assert ft.stream.Classifier is stream.Classifier
    monkeypatch.setitem(sys.modules, "river", None)
    monkeypatch.delitem(sys.modules, "foretrace.stream.python.river")
    with pytest.raises(ImportError, match=re.escape("pip install 'foretrace[river]'")):
        _ = ft.stream.Classifier
