"""A run can be stopped anywhere and resumed exactly, and nothing that exists is overwritten."""

import dataclasses
import json
import signal
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiers import fast
from trained import TRAINED as CONFIG

import foretrace as ft
from foretrace import experiment
from foretrace._options.cells import CONFIGS
from foretrace._runs import progress as _progress
from foretrace._runs.config_json import differences, from_json, to_json
from foretrace._runs.directory import default_path
from foretrace._runs.loop import IN_FLIGHT
from foretrace._runs.metrics import read_metrics
from foretrace.experiment import _report as report
from foretrace.experiment import _train
from foretrace.experiment._config import TASKS
from foretrace.experiment._program import learn, shared
from foretrace.experiment._train import read_config
from foretrace.tasks.listops import ListOps

pytestmark = pytest.mark.usefixtures("default_promotion")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, default_promotion):
    return experiment.train(CONFIG, tmp_path_factory.mktemp("runs") / "whole", show_progress=False)


def interrupt_at(monkeypatch, step):
    """Interrupt this process when a step is shown."""

    class Interrupting(_progress.ProgressBar):
        def update(self, at, loss, accuracy):
            if at == step:
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("foretrace._runs.follow.ProgressBar", lambda *_: Interrupting(False))


def without_time(records):
    return [
        {name: value for name, value in record.items() if name != "seconds"} for record in records
    ]


def parameters(run, config=CONFIG):
    state = ft.load(run.checkpoint, experiment.build(config).learner)
    return [
        np.asarray(leaf)
        for leaf in jax.tree.leaves(state._replace(key=jax.random.key_data(state.key)))
    ]


def assert_same_run(a, b):
    assert without_time(read_metrics(a.run.metrics)) == without_time(read_metrics(b.run.metrics))
    for x, y in zip(parameters(a.run), parameters(b.run), strict=True):
        assert x.dtype == y.dtype and np.array_equal(x, y)
    assert a.scores == b.scores and a.step == b.step


@pytest.mark.program
def test_a_stop_while_the_network_is_built_leaves_a_run_that_begins_anew(
    finished, tmp_path, monkeypatch
):
    def build(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return experiment.build(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("foretrace.experiment._train.build", build)
        stopped = experiment.train(CONFIG, tmp_path / "run", show_progress=False)
    assert stopped.scores is None and stopped.step == 0
    assert_same_run(
        experiment.train(CONFIG, tmp_path / "run", resume=True, show_progress=False), finished
    )


def test_the_record(finished):
    records = read_metrics(finished.run.metrics)
    steps = {
        kind: [r["step"] for r in records if r["kind"] == kind]
        for kind in ("train", "validation", "alignment")
    }
    assert steps == {"train": [10, 20, 30, 40], "validation": [0, 20, 40], "alignment": [0, 20, 40]}
    assert records[-1]["kind"] == "result" and records[-1]["loss"] == finished.scores.loss < 0.8
    aligned = next(r for r in records if r["kind"] == "alignment")
    assert len(aligned["layers"]) == 2 and aligned["layers"][1] == pytest.approx(1)
    assert (
        set(aligned["cosine"]) == set(aligned["norm_ratio"])
        and "blocks.cell.nu_log" in aligned["cosine"]
    )


def test_the_configuration_is_recorded_with_its_surroundings(finished):
    assert read_config(finished.run.path) == CONFIG
    data = json.loads(finished.run.config.read_text())
    assert data["surroundings"]["packages"]["jax"] == jax.__version__
    assert data["config"]["network"]["cell"]["type"] == "LRU"
    assert ft.read_extra(finished.run.checkpoint)["config"] == to_json(CONFIG)


@pytest.mark.parametrize(
    "cell",
    [
        experiment.LRU(3),
        experiment.LinearRNN(tanh=True),
        experiment.GRU(),
        experiment.S5(timescales=(1, 9.5)),
    ],
)
def test_configurations_survive_json(cell):
    config = experiment.Config(network=experiment.NetworkConfig(cell=cell), chunk=3)
    assert from_json(experiment.Config, json.loads(json.dumps(to_json(config)))) == config
    assert differences(config, dataclasses.replace(config, chunk=None)) == ["chunk: 3, None"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rule": 7}, r"^rule=7 must be a text$"),
        ({"rule": "onlin"}, r"^rule='onlin' is unknown; choose one of BPTT, .*TRUNCATED$"),
        ({"steps": "many"}, r"^steps='many' must be a whole number$"),
        ({"steps": True}, r"^steps=True must be a whole number$"),
        ({"chunk": 2.5}, r"^chunk=2.5 must be a whole number or None$"),
        (
            {"stepz": 3},
            r"^stepz=3 is not a setting of Config; expected task, network, .*keep_best$",
        ),
        (
            {"network": {"type": "NetworkConfig", "glu": 1}},
            r"^network.glu=1 must be True or False$",
        ),
        (
            {"network": {"type": "Network"}},
            r"^network=\{'type': 'Network'\} must be NetworkConfig$",
        ),
        ({"task": None}, r"^task=None must be Copy or SelectiveCopy or .*ListOps or \w+$"),
        (
            {"optimizer": {"type": "OptimizerConfig", "clip": "1"}},
            r"^optimizer.clip='1' must be a number or None$",
        ),
        ({"steps": 0}, r"^steps=0 must be at least 1$"),
    ],
)
def test_json_that_is_no_configuration_is_refused_by_place_value_and_what_is_expected(
    change, message
):
    with pytest.raises(ValueError, match=message):
        from_json(experiment.Config, {"type": "Config"} | change)


@pytest.mark.parametrize("timescales", [64, (1.0,), (1.0, 2.0, 3.0), "ab"])
def test_time_constants_that_are_no_pair_are_named(timescales):
    with pytest.raises(
        ValueError, match=r"^timescales=.* must be a pair, such as \(1, 1000\) or None$"
    ):
        experiment.MinGRU(timescales=timescales)


@pytest.mark.parametrize("kind", CONFIGS.values(), ids=lambda kind: kind.__name__)
def test_every_cell_of_the_command_line_fits_a_network(kind):
    network = experiment.NetworkConfig(model_size=6, depth=1, cell=kind())
    config = experiment.Config(network=network)
    assert from_json(experiment.Config, json.loads(json.dumps(to_json(config)))) == config
    sizes = config.task.input_size, config.task.output_size
    made = jax.eval_shape(lambda: config.network.drawn(*sizes, jax.random.key(0)))
    assert type(made.blocks.cell).__name__ == kind.__name__


def resume(run):
    return experiment.train(CONFIG, run.path, resume=True, show_progress=False)


def test_a_run_stopped_between_two_lines_of_its_record_is_resumed_bit_for_bit(
    tmp_path, finished, monkeypatch
):
    with monkeypatch.context() as patch:
        interrupt_at(patch, 17)
        stopped = experiment.train(CONFIG, tmp_path / "run")
    assert stopped.scores is None and 17 <= stopped.step <= 17 + IN_FLIGHT + 1
    assert_same_run(resume(stopped.run), finished)


@pytest.mark.parametrize(("batch", "step"), fast([(3, 20), (8, 40), (1, 0), (5, 40)]))
def test_an_evaluation_ends_at_sigterm_and_is_done_again(
    tmp_path, monkeypatch, finished, batch, step
):
    """Two batches are evaluated at the steps 0, 20 and 40, and five at the end."""
    calls = []
    with monkeypatch.context() as patch:
        evaluation_batches = _train.evaluation_batches

        def batches(*arguments):
            for index in range(evaluation_batches(*arguments)):
                calls.append(index)
                if len(calls) == batch:
                    signal.raise_signal(signal.SIGTERM)
                yield index

        patch.setattr(_train, "evaluation_batches", batches)
        patch.setattr(_train, "range", lambda them: them, raising=False)
        stopped = experiment.train(CONFIG, tmp_path / "run", show_progress=False)
    assert stopped.scores is None and stopped.step == step and len(calls) == batch
    assert_same_run(resume(stopped.run), finished)


@pytest.mark.full
def test_divergence_is_counted_across_a_stop_and_names_the_step_and_the_way_out(
    tmp_path, monkeypatch
):
    optimizer = experiment.OptimizerConfig(learning_rate=1e38, clip=None)
    config = dataclasses.replace(CONFIG, optimizer=optimizer, align_every=None)
    with monkeypatch.context() as patch:
        interrupt_at(patch, 9)
        assert experiment.train(config, tmp_path / "run").scores is None
    with pytest.raises(
        experiment.DivergenceError, match=r"20 steps in a row.*step 2\d.*learning_rate.*clip"
    ):
        experiment.train(config, tmp_path / "run", resume=True, show_progress=False)
    records = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [r["refused"] > 0 for r in records if r["kind"] == "train"][-1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": 0}, "steps=0"),
        ({"chunk": 0}, "chunk=0"),
        ({"seed": -1}, "seed=-1"),
        ({"network": experiment.NetworkConfig(depth=0)}, "depth=0"),
        ({"network": experiment.NetworkConfig(dropout=1.0)}, "dropout"),
        ({"optimizer": experiment.OptimizerConfig(warmup_steps=40)}, "warmup_steps"),
        ({"task": experiment.Copy(samples=3)}, "samples=3"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_written(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        experiment.train(
            dataclasses.replace(CONFIG, **change), tmp_path / "run", show_progress=False
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.full
@pytest.mark.parametrize("more", [-1, 0, 5])
def test_a_chunk_may_be_the_whole_sequence_or_longer(more):
    config = dataclasses.replace(CONFIG, chunk=CONFIG.task.length + more)
    task, learner = experiment.build(config)
    state = jax.eval_shape(learner.init)
    after, row = jax.eval_shape(partial(learn, config, learner), state, jnp.int32(0), 0)
    assert jax.tree.structure(after) == jax.tree.structure(state) and row.shape == (4,)


def test_a_run_shorter_than_its_warm_up_says_what_to_do():
    with pytest.raises(
        ValueError, match=r"warmup_steps=1000 must be below steps=2.*--optimizer.warmup-steps 0"
    ):
        experiment.build(dataclasses.replace(CONFIG, steps=2, optimizer=TASKS["smnist"].optimizer))


def test_default_directories_are_new(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = []
    for _ in range(3):
        path = default_path("copy")
        path.mkdir(parents=True)
        names.append(path.name)
    assert len(set(names)) == 3


def test_report(finished):
    table = report.table(finished.run.path)
    assert table.row_count == 1  # no published number for a task of this size
    assert report.figure(finished.run.path) == str(finished.run.figure)
    assert finished.run.figure.read_bytes()[:4] == b"\x89PNG"
    assert report.published(experiment.Config()) == 8.44e-3
    assert report.published(experiment.Config(rule="rtrl")) is None
    assert report.published(dataclasses.replace(CONFIG, rule="bptt")) is None


@pytest.mark.program
def test_the_best_network_on_validation_is_tested_however_often_the_run_stops(
    tmp_path, monkeypatch
):
    config = dataclasses.replace(
        CONFIG,
        optimizer=experiment.OptimizerConfig(0.1, schedule="constant"),
        evaluate_every=4,
        align_every=None,
        keep_best=True,
    )
    whole = experiment.train(config, tmp_path / "whole", show_progress=False)
    lines = [r for r in read_metrics(whole.run.metrics) if r["kind"] in ("validation", "result")]
    best = min(lines[1:-1], key=lambda line: line["loss"])
    assert lines[-1]["best_step"] == best["step"] < 40
    upto = dataclasses.replace(config, steps=best["step"], keep_best=False)
    assert experiment.train(upto, tmp_path / "upto", show_progress=False).scores == whole.scores
    # Without a checkpoint the run begins anew, with the best network of a later step in its folder.
    with monkeypatch.context() as patch:
        patch.setattr("foretrace._runs.follow.save", lambda *_, **__: None)
        interrupt_at(patch, best["step"] + 2)
        experiment.train(config, tmp_path / "again", show_progress=False)
    again = experiment.train(config, tmp_path / "again", resume=True, show_progress=False)
    assert_same_run(again, whole)
    files = [(run.run.path / "best.safetensors").read_bytes() for run in (again, whole)]
    assert files[0] == files[1]


def test_runs_that_differ_in_seed_and_rate_share_their_programs():
    other = dataclasses.replace(
        CONFIG, seed=7, optimizer=experiment.OptimizerConfig(0.1), log_every=1, keep_best=True
    )
    assert shared(other) == shared(CONFIG) != shared(dataclasses.replace(CONFIG, steps=41))


@pytest.mark.program
def test_a_task_of_stored_sequences_trains_and_counts_each_of_them_once(tmp_path):
    task = ListOps(samples=12, held_out=7, min_length=3, max_length=12)
    result = experiment.train(
        dataclasses.replace(CONFIG, task=task), tmp_path / "run", show_progress=False
    )
    assert result.scores.accuracy * 7 == pytest.approx(round(result.scores.accuracy * 7))
    assert result.scores.accuracy == result.scores.sequences
    assert "classified rightly" in [
        column.header for column in report.table(tmp_path / "run").columns
    ]
