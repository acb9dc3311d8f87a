"""Settings of a run directory need not be repeated; different ones are refused with both values."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

import foretrace as ft
from foretrace import experiment, sweep
from foretrace._runs.directory import create
from foretrace.cli import _main as cli
from foretrace.cli._options import RL, Reproduce, Stream, Sweep, Train
from foretrace.cli._recorded import network_in
from foretrace.experiment._config import TASKS, task_name
from foretrace.paper._reproduce import Reproduction
from foretrace.rl._config import TASKS as RL_TASKS
from foretrace.rl._config import task_name as rl_task_name
from foretrace.stream.runs.config import StreamConfig
from foretrace.tasks.own import OwnSequences

RUNS = {
    Train: dataclasses.replace(TASKS["psmnist"], seed=7, steps=1500),
    Sweep: sweep.Sweep(RL_TASKS["memory-chain"], grid=("rule=online,spatial",)),
    RL: dataclasses.replace(RL_TASKS["t-maze"], seed=7),
    Stream: StreamConfig("a.csv", target="y", delay=3),
    Reproduce: Reproduction("table1", "cpu", seeds=(3,)),
}


def parsed(line):
    return cli._parse(line.split())


@pytest.mark.parametrize("command", RUNS)
def test_a_run_of_any_kind_is_resumed_by_its_directory_alone(tmp_path, command):
    run = create(tmp_path / "run", RUNS[command]).path
    assert parsed(f"resume {run}") == command(config=RUNS[command], run_dir=run, resume=True)


def test_align_takes_the_settings_of_a_run(tmp_path):
    config = dataclasses.replace(RUNS[Train], chunk=12)
    command = parsed(f"align {create(tmp_path / 'run', config).path}")
    assert (command.chunk, command.seed, command.network) == (12, 7, config.network)


NOTHING = "nothing to report yet"


@pytest.mark.parametrize(
    ("kind", "words", "message"),
    [
        *((kind, "report", NOTHING) for kind in (Train, Sweep, Stream)),
        (RL, "report", NOTHING),  # with a result, and no line of learning
        (Reproduce, "report", "no records"),
        (Train, "report --out page.md", "--out is for folders of `foretrace reproduce`"),
        (Train, "resume --seed 3", "asked for are seed: 7, 3; leave these options out"),
        (Train, "resume --steps 59 --optimizer.warmup-steps 0", "optimizer.warmup_steps: 1000, 0"),
        (Train, "resume --cell gru", "network.cell: LRU("),
        (Train, "resume --resume", "Unrecognized options: --resume"),
        (Train, "resume copy", "copy"),
    ],
)
def test_what_cannot_be_done_with_a_run_is_said_and_changes_nothing(
    tmp_path, capsys, kind, words, message
):
    run = create(tmp_path / "run", RUNS[kind]).path
    if kind is RL:
        (run / "metrics.jsonl").write_text('{"kind": "result", "step": 1}\n')
    before = {path: path.read_bytes() for path in run.iterdir()}
    command, *options = words.split()
    assert cli.main([command, str(run), *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert {path: path.read_bytes() for path in before} == before
    assert {path.name for path in run.iterdir()} <= {*(path.name for path in before), "study.log"}


@pytest.mark.parametrize(
    ("command", "record", "whole"),
    [(Sweep, "study.log", False), (Reproduce, "records.jsonl", False), (Sweep, None, True)],
)
def test_missing_runs_are_found(tmp_path, capsys, command, record, whole):
    run = create(tmp_path / "run", RUNS[command]).path
    if record:
        (run / record).write_text("no record\n")
    assert cli.main(["check", str(run)]) == (0 if whole else 1)
    out = capsys.readouterr().out
    assert ": there is no run" in out
    assert ("records.jsonl, line 1 is not a line" in out) == (command is Reproduce)


def test_every_task_has_its_name():
    assert [*TASKS] == [task_name(config.task) for config in TASKS.values()]
    assert [*RL_TASKS] == [rl_task_name(config.environment) for config in RL_TASKS.values()]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """Return the run directory of a training on a file, beside the file, in the present folder."""
    folder = tmp_path_factory.mktemp("own")
    line = (
        "train --data my.npz --steps 2 --batch-size 4 --depth 1 --model-size 4 --align-every None "
        "--state-size 3 --run-dir run --final-sequences 4"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        xs, ys = np.random.default_rng(0).normal(size=(20, 5, 2)), np.arange(20) % 3
        np.savez("my.npz", xs=xs, ys=ys)
        assert cli.main(line.split()) == 0
        yield folder / "run"


@pytest.mark.full
def test_missing_data_are_not_the_fault_of_the_checkpoint(own, capsys):
    (own.parent / "my.npz").rename(own.parent / "elsewhere.npz")
    try:
        assert cli.main(["export", "run", "--out", "graph"]) == 2
    finally:
        (own.parent / "elsewhere.npz").rename(own.parent / "my.npz")
    said = " ".join(capsys.readouterr().err.split())
    assert "cannot read" in said and "does not write" not in said


@pytest.mark.full
def test_an_exported_network_takes_rows_as_the_file_holds_them(own, capsys, tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="pip install 'foretrace[export]'")
    out = tmp_path / "net.onnx"
    words = ["export", str(own), "--format", "onnx", "--out", str(out)]
    assert cli.main([*words, "--learning-rate", "1"]) == 2
    assert "--learning-rate is for --learn" in capsys.readouterr().err
    assert cli.main(words) == 0
    session, config = runtime.InferenceSession(out.read_bytes()), experiment.read_config(own)
    x = jnp.array([3.0, -2.0], jnp.float32)
    given = {one.name: np.zeros(one.shape, np.float32) for one in session.get_inputs()} | {
        "x": np.asarray(x)
    }
    network = network_in(own, config)
    want = ft.forward(network, None, config.task.scaled(x)[None])[0][0]
    np.testing.assert_allclose(session.run(["outputs"], given)[0], want, rtol=1e-4, atol=1e-6)
    np.savez(tmp_path / "n.npz", xs=np.ones((9, 4)), ys=np.arange(9) + 5.0)
    task = OwnSequences(str(tmp_path / "n.npz"))
    ys = np.load(tmp_path / "n.npz")["ys"][task._stored.members["training"]]
    np.testing.assert_allclose(task.unscaled(jnp.zeros(1)), ys.mean(), rtol=1e-5)


@pytest.mark.full
def test_the_best_network_is_the_one_that_is_exported_and_checked(tmp_path, capsys):
    line = (
        "train copy --steps 3 --batch-size 2 --depth 1 --model-size 4 --state-size 3 --keep-best "
        "--evaluate-every 1 --align-every None --validation-sequences 4 --final-sequences 4 --lr 1"
    )
    run = tmp_path / "run"
    assert cli.main([*line.split(), "--run-dir", str(run)]) == 0
    found = network_in(run, experiment.read_config(run)).decoder.linear.weight
    best = load_file(run / "best.safetensors")
    np.testing.assert_array_equal(found, best["decoder.linear.weight"])
    assert cli.main(["check", str(run)]) == 0
    data = (run / "best.safetensors").read_bytes()
    (run / "best.safetensors").write_bytes(data[:-8] + b"damaged!")
    assert cli.main(["check", str(run)]) == 1
    assert "best.safetensors" in capsys.readouterr().out


@pytest.mark.full
def test_a_sweep_on_a_file_names_it_for_every_place_and_is_checked(own, capsys, monkeypatch):
    pytest.importorskip("optuna")
    words = "--steps 1 --batch-size 4 --depth 1 --model-size 4 --align-every None --state-size 3"
    monkeypatch.chdir(own.parent)
    line = f"sweep --data my.npz {words} --final-sequences 4 --grid lr=1e-3 --run-dir swept"
    assert cli.main(line.split()) == 0
    (trial,) = (own.parent / "swept" / "trials").iterdir()
    monkeypatch.chdir("/")
    assert cli.main(["resume", str(trial)]) == 0
    monkeypatch.chdir(own.parent)
    assert cli.main(["resume", str(trial), "--data", "my.npz"]) == 0
    assert cli.main(["check", str(own.parent / "swept")]) == 0
    log = own.parent / "swept" / "study.log"
    log.write_bytes(b"no line of a study\n" + log.read_bytes())
    assert cli.main(["check", str(own.parent / "swept")]) == 1
    assert "study.log" in capsys.readouterr().out


def test_options_of_one_cell_are_not_for_a_sweep_over_cells():
    with pytest.raises(ValueError, match="--grid state-size=VALUE"):
        cli._parse("sweep copy --grid cell=lru,gru --state-size 4".split())
    cli._parse("sweep copy --grid cell=lru,gru --grid state-size=4 --model-size 8".split())


def test_a_service_reads_its_run_wherever_it_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"target": "y", "member": "machine", "waiting": 7, "id": "id"}
    recorded = StreamConfig("machine/events.jsonl", **options)
    create(tmp_path / "machine", recorded)
    for line in ("serve machine", "serve machine --member machine", "serve --port 0 machine"):
        command = cli._parse(line.split())
        assert (str(command.run), command.config.waiting) == ("machine", 7)
        assert command.config.member == "machine"
    assert cli._parse("serve other --like a.csv --member machine".split()).config.waiting == 10_000
    command = cli._parse("train --data a.npz --each-step False".split())
    assert command.config.task.each_step is False
