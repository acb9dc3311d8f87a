"""A sweep is its trials, whoever runs them and whatever happens to the workers."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from quick import FLAGS

from foretrace import experiment
from foretrace._runs.directory import create
from foretrace._runs.metrics import read_metrics
from foretrace.cli import _main as cli
from foretrace.experiment._cells import LRU, MinGRU
from foretrace.experiment._scores import Scores
from foretrace.sweep import _run as sweep
from foretrace.sweep import _study as _sweep_study
from foretrace.sweep._config import Sweep
from foretrace.sweep._space import applied
from foretrace.sweep._study import connect, default_storage, give_up, plan, standing, take
from foretrace.sweep._trials import Trial, best, ranked, read_trials, write_trials
from foretrace.sweep._worker import Worker

# Of trials that these tests take by hand.
pytestmark = pytest.mark.filterwarnings("ignore:Heartbeat of storage")

STEPS = 1200
TINY = (
    "--task.pattern-length=3 --task.padding=1 --task.bits=2 --network.depth=1 "
    f"--network.model-size=6 --network.cell.state-size=4 --batch-size=4 --steps={STEPS} "
    "--log-every=50 --evaluate-every=400 --align-every=None --checkpoint-every=50 "
    "--validation-sequences=8 --final-sequences=8"
).split()
GRID = ["--grid", "optimizer.learning-rate=1e-4,3e-2"]
SMALL = experiment.Config(
    task=experiment.Copy(pattern_length=3, padding=1, bits=2),
    network=experiment.NetworkConfig(depth=1, model_size=6, cell=experiment.LRU(state_size=4)),
    optimizer=experiment.OptimizerConfig(clip=None),
    steps=60,
    batch_size=4,
    log_every=20,
    evaluate_every=20,
    align_every=None,
    checkpoint_every=20,
    validation_sequences=8,
    final_sequences=8,
)


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Let workers compile fast, and every program only once."""
    settings = {
        "XLA_FLAGS": FLAGS,
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path_factory.mktemp("programs")),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setenv(name, value)
        yield


def swept(folder, *arguments):
    """Run the command in this process, its workers in their own; return exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main(["sweep", "copy", "--run-dir", str(folder), *arguments])
    return code, out.getvalue(), err.getvalue()


@pytest.fixture(scope="module")
def whole(environment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("sweeps") / "whole"
    code, out, err = swept(folder, *GRID, *TINY)
    assert code == 0, err
    return folder, out, err


def run(capsys, *arguments):
    """Run a command in this process."""
    try:
        code = cli.main(arguments)
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


def records(path):
    return [
        {k: v for k, v in r.items() if k != "seconds"} for r in read_metrics(path / "metrics.jsonl")
    ]


@pytest.mark.program
def test_a_grid_ends_with_its_trials_best_first_by_validation_alone(whole):
    folder, out, err = whole
    trials = read_trials(folder)
    assert [(t.number, t.state, t.step) for t in trials] == [
        (0, "finished", STEPS),
        (1, "finished", STEPS),
    ]
    assert [t.values["optimizer.learning-rate"] for t in trials] == ["1e-4", "3e-2"]
    for trial in trials:
        found = records(folder / "trials" / str(trial.number))
        last = [r for r in found if r["kind"] == "validation"][-1]
        assert trial.score == last["loss"] != found[-1]["loss"]  # that of the test sequences
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.count("│") > 3]
    assert rows == ["1", "0"] and trials[1].score < trials[0].score - 0.1
    assert "trial 1 finished: loss" in err and "trials: 0 of 2 done" in err and "\x1b" not in err
    for name in ("config.json", "sweep.jsonl", "sweep.db"):
        assert (folder / name).stat().st_size > 0 and name in out
    assert (folder / "sweep.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.program
def test_report_reads_a_sweep_and_each_of_its_trials(whole, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)  # the records are enough
    (whole[0] / "sweep.png").unlink()
    code, out, _ = run(capsys, "report", str(whole[0]))
    assert (
        code == 0
        and "Best: optimizer.learning-rate=3e-2" in out
        and (whole[0] / "sweep.png").exists()
    )
    code, out, _ = run(capsys, "report", str(whole[0] / "trials" / "1"))
    assert code == 0 and f"{STEPS} of {STEPS}" in out


@pytest.mark.program
def test_a_killed_worker_and_a_stopped_sweep_change_nothing(whole, tmp_path, monkeypatch):
    folder, workers = tmp_path / "sweep", []

    class Recorded(subprocess.Popen):
        def __init__(self, command, **options):
            super().__init__(command, **options)
            if "foretrace.sweep._worker" in command:
                workers.append(self)

    monkeypatch.setattr(subprocess, "Popen", Recorded)

    def meddle():
        # Another worker comes, and takes what waits; the trial that was lost is the last one then.
        wait_until(lambda: trained(folder / "trials" / "0", 100))
        workers[0].kill()
        wait_until(lambda: trained(folder / "trials" / "1", 100))
        os.kill(os.getpid(), signal.SIGINT)

    meddler = threading.Thread(target=meddle)
    meddler.start()
    code, out, err = swept(folder, *GRID, *TINY)
    meddler.join()
    assert code == cli.STOPPED and len(workers) == 2, err
    assert "stopped after 0 of 2 trials" in out and f"foretrace sweep --resume {folder}" in out
    assert [trial.state for trial in read_trials(folder)] == ["waiting", "waiting"]
    began = (folder / "trials" / "0" / "config.json").read_bytes()
    code, _, err = swept(folder, "--resume", "--workers", "2", *GRID, *TINY)
    assert (
        code == 0 and len(workers) == 4 and all(worker.poll() is not None for worker in workers)
    ), err
    assert read_trials(folder) == read_trials(whole[0])
    for number in "01":
        assert records(folder / "trials" / number) == records(whole[0] / "trials" / number)
    assert (
        folder / "trials" / "0" / "config.json"
    ).read_bytes() == began  # resumed, not begun anew


def wait_until(arrived):
    for _ in range(4800):
        if arrived():
            return
        time.sleep(0.025)
    raise AssertionError("the sweep did not get on")


def trained(path, step):
    return (path / "checkpoint.safetensors").exists() and f'"step": {step}' in (
        path / "metrics.jsonl"
    ).read_text()


@pytest.fixture
def begun(tmp_path):
    """Begin a sweep; return its study and a way to get workers for it."""

    def begun(plan_of, heartbeat=10):
        create(tmp_path / "sweep", plan_of)
        study = connect(tmp_path / "sweep", default_storage(tmp_path / "sweep"), plan_of, heartbeat)
        plan(study, tmp_path / "sweep", plan_of)

        def worker(name="one"):
            return Worker(tmp_path / "sweep", default_storage(tmp_path / "sweep"), name, heartbeat)

        return study, worker

    begun.folder = tmp_path / "sweep"
    return begun


def states(study):
    return [trial.state for trial in standing(study)]


def pretend(monkeypatch, score, calls=None):
    """Let trials end at once with the score that a function of their configuration says."""

    def train(config, path, *, resume, show_progress, watch):
        if calls is not None:
            calls.append((path.name, resume))
        value = score(config)
        watch(config.steps, Scores(value, value, value))
        return experiment.Result(experiment.Run(path), config.steps, Scores(0.0, 1.0, 1.0), 0.0)

    monkeypatch.setattr(experiment, "train", train)


@pytest.mark.program
def test_a_search_finds_what_is_good_and_is_the_same_whoever_runs_it(begun, monkeypatch, tmp_path):
    pretend(
        monkeypatch,
        lambda config: abs(config.optimizer.learning_rate - 1e-3) + config.network.depth,
    )
    asked = Sweep(
        SMALL, search=("optimizer.learning-rate=log:1e-5:1e-1", "network.depth=1:4"), trials=16
    )
    study, worker = begun(asked)
    assert worker().work() and states(study) == ["finished"] * 16
    found = best(standing(study), asked.sign)
    assert (
        found.values["network.depth"] == 1 and 1e-4 < found.values["optimizer.learning-rate"] < 1e-2
    )
    rates = [t.values["optimizer.learning-rate"] for t in standing(study)]
    # In magnitudes.
    assert all(1e-5 <= rate <= 1e-1 for rate in rates) and sum(rate < 1e-3 for rate in rates) > 3

    # One worker for each of the first trials, as if all were stopped in between.
    again = connect(begun.folder, f"sqlite:///{tmp_path / 'again.db'}", asked)
    plan(again, begun.folder, asked)
    for number in range(3):
        fresh = connect(begun.folder, f"sqlite:///{tmp_path / 'again.db'}", asked)
        assert take(fresh.ask(), asked, "x") == (number, standing(study)[number].values)
    other = connect(begun.folder, f"sqlite:///{tmp_path / 'other.db'}", asked)
    reseeded = Sweep(applied(SMALL, {"seed": "1"}), search=asked.search)
    plan(other, begun.folder, reseeded)
    assert take(other.ask(), reseeded, "x")[1] != standing(study)[0].values


@pytest.mark.full
def test_a_trial_that_fails_says_why_and_is_not_the_end(begun, monkeypatch):
    def score(config):
        if config.optimizer.learning_rate == 1:
            raise experiment.DivergenceError("training has diverged")
        return config.optimizer.learning_rate

    pretend(monkeypatch, score)
    # The third one makes no network, which only the combination shows.
    cells = ("optimizer.learning-rate=1,0.5", "network.cell=lru,gru", "network.cell.r-min=0,0.1")
    asked = Sweep(SMALL, grid=cells)
    study, worker = begun(asked)
    assert worker().work()
    reasons = [trial.reason for trial in standing(study)]
    assert reasons[:2] == ["training has diverged"] * 2
    assert all(
        "--network.cell.r-min (applied to foretrace train network.cell:gru)" in reason
        for reason in reasons[2:4]
    )
    assert states(study) == ["failed"] * 4 + ["finished"] * 2 + ["failed"] * 2
    assert best(standing(study), 1).number == 4


def test_larger_is_better_for_accuracy(begun, monkeypatch):
    pretend(monkeypatch, lambda config: config.network.depth)
    asked = Sweep(SMALL, grid=("network.depth=1,3,2",), score="accuracy")
    study, worker = begun(asked)
    worker().work()
    assert [t.number for t in ranked(standing(study), asked.sign)] == [1, 2, 0]


@pytest.mark.parametrize("score", ["loss", "accuracy"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_never_wins(begun, monkeypatch, score, value):
    pretend(monkeypatch, lambda config: value if config.network.depth == 1 else 0.5)
    asked = Sweep(SMALL, grid=("network.depth=1,2",), score=score)
    study, worker = begun(asked)
    worker().work()
    assert (
        states(study) == ["failed", "finished"]
        and standing(study)[0].reason == f"the {score} is {value}"
    )
    assert best(standing(study), asked.sign).number == 1
    write_trials(begun.folder, standing(study))
    assert read_trials(begun.folder) == standing(study)
    json.loads(
        (begun.folder / "sweep.jsonl").read_text().splitlines()[0], parse_constant=pytest.fail
    )


@pytest.mark.parametrize("begins", [0, 1])
def test_a_trial_that_another_worker_begins_at_the_same_time_has_not_failed(
    begun, monkeypatch, begins
):
    """A worker of a killed sweep goes on until it notices; the resumed sweep has its own."""
    train, calls = experiment.train, []
    asked = Sweep(SMALL, grid=("optimizer.learning-rate=1e-3",))
    study, worker = begun(asked)

    def begin(config, path, *, resume, **options):
        calls.append(resume)
        if len(calls) > 1:
            return ended(config, path, resume=resume, **options)
        if begins:  # before the look into the directory, and in the middle of it
            path.mkdir(parents=True)
            (path / "config.json").touch()
        else:
            monkeypatch.setattr(os, "link", too_late)
        try:
            return train(config, path, resume=resume, **options)
        finally:
            monkeypatch.setattr(os, "link", link)

    def too_late(source, target):
        target.touch()
        return link(source, target)

    link = os.link
    pretend(monkeypatch, lambda config: 0.5)
    ended = experiment.train
    monkeypatch.setattr(experiment, "train", begin)
    assert worker().work()
    assert calls == [False, True]
    (trial,) = standing(study)
    assert (trial.state, trial.reason) == ("finished", "")


def test_trials_of_a_worker_without_a_sign_of_life_are_run_again(begun, monkeypatch):
    monkeypatch.setattr(_sweep_study, "SILENT", 1)
    calls = []
    pretend(monkeypatch, lambda config: 0.5, calls=calls)
    asked = Sweep(SMALL, search=("optimizer.learning-rate=1e-3:1e-2",), trials=2)
    study, worker = begun(asked, heartbeat=1)
    lost = study.ask()
    study._storage.record_heartbeat(lost._trial_id)
    values = take(lost, asked, "somebody else")[1]
    study.ask()  # lost before its first sign of life
    assert states(study) == ["running", "running"]
    assert worker().work() and states(study) == ["finished", "finished"]
    assert [name for name, _ in calls] == ["0", "1"] or [name for name, _ in calls] == ["1", "0"]
    assert standing(study)[0].values == values


def test_a_trial_that_kills_its_workers_is_given_up(begun):
    study, _ = begun(Sweep(SMALL, grid=("rule=online,bptt",)))
    for _ in range(_sweep_study.RETRIES + 1):
        assert {"waiting"} == set(states(study)) and not give_up(study, "mine")
        taken = [study.ask() for _ in range(2)]
        numbers = [
            take(trial, Sweep(SMALL, grid=("rule=online,bptt",)), "mine")[0] for trial in taken
        ]
        assert sorted(numbers) == [0, 1] and give_up(study, "mine")
    assert states(study) == ["failed", "failed"] and "worker was lost" in standing(study)[0].reason
    # Whoever goes on gives it another chance.
    plan(study, begun.folder, Sweep(SMALL, grid=("rule=online,bptt",)))
    assert states(study) == ["waiting", "waiting"]


def test_who_comes_later_adds_nothing_but_more_trials(begun, monkeypatch):
    pretend(monkeypatch, lambda config: config.optimizer.learning_rate)
    asked = Sweep(SMALL, search=("optimizer.learning-rate=1e-3:1e-2",), trials=2)
    study, worker = begun(asked)
    plan(study, begun.folder, asked)
    assert len(standing(study)) == 2
    surplus = [study.ask() for _ in range(3)][-1]
    assert take(surplus, asked, "x") is None and len(standing(study)) == 2
    longer = Sweep(SMALL, search=asked.search, trials=3)
    sweep._enter(begun.folder, longer, resume=True, join=False)
    plan(study, begun.folder, longer)
    assert states(study) == ["running", "running", "waiting"]
    with pytest.raises(experiment.RunError, match="another configuration"):
        sweep._enter(
            begun.folder,
            Sweep(SMALL, search=("optimizer.learning-rate=1e-3:1",)),
            resume=True,
            join=False,
        )
    with pytest.raises(experiment.RunError, match="--resume"):
        sweep._enter(begun.folder, asked, resume=False, join=False)
    assert sweep._enter(begun.folder, asked, resume=False, join=True).path == begun.folder


def test_values_are_those_of_the_options():
    changed = applied(
        SMALL, {"network.cell.timescales": "1 100", "network.glu": "false", "optimizer.clip": "2"}
    )
    assert changed.network.cell == LRU(4, timescales=(1.0, 100.0))  # its other settings stay
    assert (changed.network.glu, changed.optimizer.clip) == (False, 2.0)
    assert applied(SMALL, {"network.cell": "lru"}) == SMALL
    other = applied(
        SMALL, {"network.cell.timescales": "1 9", "network.cell": "min-gru", "chunk": "3"}
    )
    assert other.network.cell == MinGRU(timescales=(1.0, 9.0)) and other.chunk == 3
    rules = Sweep(SMALL, grid=("rule=online(depth=1, groups=1), bptt",))
    assert [rules.of(values).rule for values in rules.combinations] == [
        "online(depth=1, groups=1)",
        "bptt",
    ]
    assert Sweep(SMALL, search=("chunk=log:2:8", "optimizer.clip=1:2")).dimensions[0].whole
    assert not Sweep(SMALL, search=("optimizer.clip=1:2",)).dimensions[0].whole


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", "--grid or --search"),
        (
            "--grid learning-rate=1",
            "--grid learning-rate=1: Unrecognized options: --learning-rate, 1; Perhaps you meant: "
            "--lr, --optimizer.learning-rate",
        ),
        (
            "--grid network.dept=1,2",
            "Unrecognized options: --network.dept, 1; Perhaps you meant: --depth, --network.depth",
        ),
        (
            "--grid network.depth=1,two",
            "--grid network.depth=1,two: Error parsing --depth/--network.depth: "
            "invalid literal for int() with base 10: 'two'",
        ),
        ("--grid optimizer.clip=1,nan", "'nan' is not a finite number"),
        (
            "--grid rule=online,bptt2",
            "rule='bptt2' is unknown; choose one of BPTT, HYBRID, ONLINE",
        ),
        (
            "--grid network.cell=lru,lstm",
            "network.cell:lstm; Available subcommands: network.cell:lru, network.cell:linear-rnn",
        ),
        ("--grid network.depth=1:4", "for --search"),
        ("--grid network.depth=1,1", "the same value twice"),
        ("--grid network.depth", "expected OPTION=VALUES"),
        ("--grid rule=bptt --grid rule=rtrl", "--grid rule=rtrl: this option is named twice"),
        (
            "--grid network.depth=1,0",
            "a trial with network.depth=0 cannot run: Network(depth=0) must be at least 1",
        ),
        ("--search optimizer.learning-rate=1e-2:1e-4", "from a smaller to a larger number"),
        ("--search optimizer.learning-rate=log:0:1", "begins above zero"),
        ("--search network.depth=1:2:3", "LOW:HIGH"),
        ("--search network.depth=1:2.5", "invalid literal for int() with base 10: '2.5'"),
        ("--search network.dropout=0:1", "network.dropout=1.0 cannot run"),
        ("--search rule=online --grid network.depth=1,2", "exclude each other"),
        ("--grid rule=online --trials 3", "--trials is for --search"),
        ("--search network.depth=1:2 --trials 0", "trials=0"),
        ("--grid rule=online --workers 0", "workers=0"),
        ("--grid rule=online --resume", "--run-dir"),
        ("--grid rule=online --resume --run-dir absent", "no run at absent"),
        ("--grid rule=online --run-dir .", "holds files already"),
    ],
)
def test_bad_input_is_one_clear_message(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    code, out, err = run(capsys, "sweep", "copy", *TINY, *arguments.split())
    assert code == 2
    assert message in " ".join(err.split()) and "Traceback" not in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_database_that_is_not_there_is_named_without_its_password(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for address in (
        "nonsense",
        "sqlite:////absent/folder/file.db",
        "postgresql+absent://me:secret@host/name",
    ):
        options = ["--grid", "rule=bptt", "--storage", address, "--run-dir", f"to-{len(address)}"]
        code, _, err = run(capsys, "sweep", "copy", *TINY, *options)
        assert code == 2 and "--storage: no database there" in err and "secret" not in err


def test_without_optuna_it_says_what_to_install(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    code, _, err = run(capsys, "sweep", "copy", *TINY, *GRID)
    assert code == 2 and "pip install 'foretrace[sweep]'" in err and not list(tmp_path.iterdir())


def test_the_table_shows_every_state(capsys, tmp_path):
    create(tmp_path / "sweep", Sweep(SMALL, grid=("network.depth=1,2", "rule=online,bptt")))
    code, _, err = run(capsys, "report", str(tmp_path / "sweep"))
    assert code == 2 and "nothing to report yet" in err
    values = Sweep(SMALL, grid=("network.depth=1,2", "rule=online,bptt")).combinations
    told = [
        ("failed", None, "no memory"),
        ("running", 0.1, ""),
        ("finished", 0.2, ""),
        ("waiting", None, ""),
    ]
    trials = [
        Trial(i, state, values[i], 20, score, why) for i, (state, score, why) in enumerate(told)
    ]
    write_trials(tmp_path / "sweep", trials)
    code, out, _ = run(capsys, "report", str(tmp_path / "sweep"))
    rows = [line.split("│")[1].strip() for line in out.splitlines() if line.count("│") > 3]
    assert code == 0 and rows == ["2", "1", "3", "0"]
    assert (
        "failed: no memory" in out
        and "Best: network.depth=2, rule=online" in out
        and "1 finished, 1 failed" in out
    )


def test_help_explains(capsys):
    code, out, _ = run(capsys, "sweep", "copy", "--help")
    text = " ".join(out.replace("│", " ").split())
    assert code == 0 and "LOW:HIGH" in text and "--optimizer.learning-rate" in text


def test_what_was_planned_for_a_trial_survives_that_it_never_asked_for_it():
    """Its worker was lost between taking it and asking for its values."""
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study()
    study.enqueue_trial({"rule": "bptt"}, user_attrs={"number": 0, "owner": "lost"})
    taken = study.ask()
    study.tell(taken.number, state=optuna.trial.TrialState.FAIL)
    _sweep_study.put_back(study, study.trials[0])
    again = study.trials[-1]
    assert again.system_attrs["fixed_params"] == {"rule": "bptt"}
    assert again.user_attrs == {"number": 0}


def test_short_names_of_options_are_searched_like_long_ones():
    short = sweep.Sweep(grid=("lr=1e-3,2e-3", "--depth=1,2", "cell=gru,lru"))
    long = sweep.Sweep(
        grid=("optimizer.learning-rate=1e-3,2e-3", "network.depth=1,2", "network.cell=gru,lru")
    )
    assert short.dimensions == long.dimensions and short.combinations == long.combinations
    assert (
        sweep.Sweep(search=("lr=log:1e-4:1e-2",)).dimensions[0].option == "optimizer.learning-rate"
    )
    with pytest.raises(ValueError, match="named twice"):
        sweep.Sweep(grid=("lr=1e-3", "optimizer.learning-rate=2e-3"))
