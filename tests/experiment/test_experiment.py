"""A run can be stopped anywhere and resumed exactly, and nothing that exists is overwritten."""

import dataclasses
import json
import signal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gradients import assert_same
from tiers import fast
from trained import TRAINED as CONFIG

import foretrace as ft
from foretrace import experiment
from foretrace._options.cells import CONFIGS
from foretrace._runs import progress as _progress
from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.directory import default_path
from foretrace._runs.follow import IN_FLIGHT
from foretrace._runs.metrics import read_metrics
from foretrace.experiment import _report as report
from foretrace.experiment import _train
from foretrace.experiment._program import learn, shared

CHANGED = partial(dataclasses.replace, CONFIG)
OPTIMIZER, NETWORK = experiment.OptimizerConfig, experiment.NetworkConfig


def train(folder, config=CONFIG, **options):
    return experiment.train(config, folder, show_progress=False, **options)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "whole")


def interrupt_at(step, patch):
    """Interrupt this process when a step is shown."""

    class Interrupting(_progress.ProgressBar):
        def reach(self, at, text):
            if at == step:
                signal.raise_signal(signal.SIGINT)

    patch.setattr("foretrace._runs.follow.ProgressBar", lambda *_, **__: Interrupting(False))


def terminate_in_batch(number, patch):
    """Ask to stop in a batch of an evaluation: two at the steps 0, 20 and 40, five at the end."""
    evaluation_batches, calls = _train.evaluation_batches, []

    def batches(*arguments):
        for index in range(evaluation_batches(*arguments)):
            calls.append(index)
            assert len(calls) <= number
            if len(calls) == number:
                signal.raise_signal(signal.SIGTERM)
            yield index

    patch.setattr(_train, "evaluation_batches", batches)
    patch.setattr(_train, "range", lambda them: them, raising=False)


def without_time(path):
    return [
        {name: value for name, value in record.items() if name != "seconds"}
        for record in read_metrics(path)
    ]


def assert_same_run(a, b, config=CONFIG):
    learner = experiment.build(config).learner
    assert_same(*(ft.load(one.run.checkpoint, learner) for one in (a, b)))
    assert without_time(a.run.metrics) == without_time(b.run.metrics)
    assert a.scores == b.scores and a.step == b.step


@pytest.mark.parametrize(
    ("stop", "least", "most"),
    fast(
        [
            (partial(terminate_in_batch, 3), 20, 20),
            (partial(interrupt_at, 17), 17, 17 + IN_FLIGHT + 1),
            (partial(terminate_in_batch, 8), 40, 40),
        ],
    ),
)
def test_a_stopped_run_is_resumed_bit_for_bit(tmp_path, finished, stop, least, most):
    with pytest.MonkeyPatch.context() as patch:
        stop(patch)
        stopped = train(tmp_path / "run")
    assert stopped.scores is None and least <= stopped.step <= most
    assert_same_run(train(tmp_path / "run", resume=True), finished)


def test_the_record(finished):
    records = read_metrics(finished.run.metrics)
    of = {
        kind: {r["step"]: r for r in records if r["kind"] == kind}
        for kind in ("train", "validation", "alignment")
    }
    assert list(of["train"]) == [10, 20, 30, 40]
    assert list(of["validation"]) == list(of["alignment"]) == [0, 20, 40]
    assert records[-1]["kind"] == "result" and records[-1]["loss"] == finished.scores.loss < 0.8
    assert all(line["refused"] == 0 and line["gradient_norm"] > 0 for line in of["train"].values())
    aligned = of["alignment"][0]
    assert len(aligned["layers"]) == 2 and aligned["layers"][1] == pytest.approx(1)
    assert aligned["cosine"].keys() == aligned["norm_ratio"].keys() >= {"blocks.cell.nu_log"}
    assert experiment.read_config(finished.run.path) == CONFIG
    data = json.loads(finished.run.config.read_text())
    assert data["surroundings"]["packages"]["jax"] == jax.__version__
    assert ft.read_extra(finished.run.checkpoint)["config"] == to_json(CONFIG)


def test_a_line_of_training_is_the_mean_of_the_steps_since_the_one_before(tmp_path, finished):
    def losses(result):
        return [r["loss"] for r in read_metrics(result.run.metrics) if r["kind"] == "train"]

    each = np.reshape(losses(train(tmp_path, CHANGED(log_every=1, align_every=None))), (4, 10))
    np.testing.assert_allclose(losses(finished), each.mean(axis=1), rtol=1e-6)


CELLS = [*(kind() for kind in CONFIGS.values()), experiment.S5(timescales=(1, 9.5))]
CELLS += [experiment.Beside((experiment.RTU(6), experiment.GRU()))]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: type(cell).__name__)
def test_every_cell_of_the_command_line_survives_json_and_fits_a_network(cell):
    config = experiment.Config(network=NETWORK(model_size=6, depth=1, cell=cell), chunk=3)
    assert from_json(experiment.Config, json.loads(json.dumps(to_json(config)))) == config
    sizes = config.task.input_size, config.task.output_size
    made = jax.eval_shape(lambda: config.network.drawn(*sizes, jax.random.key(0)))
    assert type(made.blocks.cell).__name__ == type(cell).__name__


def read(**data):
    return partial(from_json, experiment.Config, {"type": "Config"} | data)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (read(rule=7), r"^rule=7 must be a text$"),
        (read(rule="onlin"), r"^rule='onlin' is unknown; choose one of BPTT, .*TRUNCATED$"),
        (read(steps=True), r"^steps=True must be a whole number$"),
        (read(chunk=2.5), r"^chunk=2.5 must be a whole number or None$"),
        (read(stepz=3), r"^stepz=3 is not a setting of Config; expected task, .*keep_best$"),
        (
            read(network={"type": "NetworkConfig", "glu": 1}),
            r"^network.glu=1 must be True or False$",
        ),
        (read(network={"type": "Net"}), r"^network=\{'type': 'Net'\} must be NetworkConfig$"),
        (read(task=None), r"^task=None must be Copy or SelectiveCopy or .*ListOps or \w+$"),
        (
            read(optimizer={"type": "OptimizerConfig", "clip": "1"}),
            r"^optimizer.clip='1' must be a number or None$",
        ),
        *(
            (partial(CHANGED, **{name: 0}), f"^{name}=0 must be at least 1$")
            for name in ("steps", "batch_size", "chunk", "segment", "log_every", "final_sequences")
        ),
        (partial(CHANGED, steps=2**31), "^steps=2147483648 must be below"),
        (partial(CHANGED, matmul_precision="half"), "^matmul_precision='half' must be one of"),
        (partial(CHANGED, seed=-1), r"^seed=-1 must lie in \[0, 2\^31\)$"),
        (
            partial(experiment.MinGRU, timescales="ab"),
            r"^timescales='ab' must be a pair, such as \(1, 1000\) or None$",
        ),
    ],
)
def test_a_wrong_setting_is_refused_by_place_value_and_what_is_expected(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("more", fast([0, -1, 5]))
def test_a_chunk_may_be_the_whole_sequence_or_longer(more):
    config = CHANGED(chunk=CONFIG.task.length + more)

    def begin_and_learn():
        _, learner = experiment.build(config)
        state = learner.init()
        return state, *learn(config, learner, state, jnp.int32(0), 0)

    state, after, row = jax.eval_shape(begin_and_learn)
    assert jax.tree.structure(after) == jax.tree.structure(state) and row.shape == (4,)


def test_default_directories_are_new(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = []
    for _ in range(3):
        paths.append(default_path("copy"))
        paths[-1].mkdir(parents=True)
    assert len(set(paths)) == 3


def test_report(finished):
    table = report.table(finished.run.path)
    assert table.row_count == 1  # no published number for a task of this size
    assert report.figure(finished.run.path) == str(finished.run.figure)
    assert finished.run.figure.read_bytes()[:4] == b"\x89PNG"
    assert report.published(experiment.Config()) == 8.44e-3
    assert report.published(experiment.Config(rule="rtrl")) is None
    assert report.published(CHANGED(rule="bptt")) is None


@pytest.mark.program
def test_the_best_network_on_validation_is_tested_however_often_the_run_stops(
    tmp_path, monkeypatch
):
    best_kept = {"evaluate_every": 4, "align_every": None, "keep_best": True}
    config = CHANGED(optimizer=OPTIMIZER(0.1, schedule="constant"), **best_kept)
    whole = train(tmp_path / "whole", config)
    lines = [r for r in read_metrics(whole.run.metrics) if r["kind"] in ("validation", "result")]
    best = min(lines[1:-1], key=lambda line: line["loss"])
    assert lines[-1]["best_step"] == best["step"] < 40
    upto = dataclasses.replace(config, steps=best["step"], keep_best=False)
    assert train(tmp_path / "upto", upto).scores == whole.scores
    # Without a checkpoint the run begins anew, with the best network of a later step in its folder.
    with monkeypatch.context() as patch:
        patch.setattr("foretrace._runs.follow.save", lambda *_, **__: None)
        interrupt_at(best["step"] + 2, patch)
        train(tmp_path / "again", config)
    again = train(tmp_path / "again", config, resume=True)
    assert_same_run(again, whole)
    files = [(run.run.path / "best.safetensors").read_bytes() for run in (again, whole)]
    assert files[0] == files[1]


def test_runs_that_differ_in_seed_and_rate_share_their_programs():
    other = CHANGED(seed=7, optimizer=OPTIMIZER(0.1), log_every=1, keep_best=True)
    assert shared(other) == shared(CONFIG) != shared(CHANGED(steps=41))
