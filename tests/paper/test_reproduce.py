"""An experiment ends with equal records however often it stops, beside the paper's numbers."""

import contextlib
import dataclasses
import math
import shlex
import signal
from functools import partial
from pathlib import Path

import jax
import pytest

from foretrace import paper
from foretrace._options.cells import LRU
from foretrace._options.network import NetworkConfig
from foretrace._runs.config_json import to_json
from foretrace._runs.directory import create, run_in
from foretrace._runs.files import locked
from foretrace.cli import _main as cli
from foretrace.experiment import _train
from foretrace.experiment._config import Config, OptimizerConfig
from foretrace.experiment._program import shared
from foretrace.paper import _reproduce as reproduce
from foretrace.paper import _tables as tables
from foretrace.paper._jobs import identity_in, left, reports, searches
from foretrace.paper._page import read_all, write_report
from foretrace.paper._records import RECORDS_FILE, identity_of, read_records
from foretrace.tasks.copy import Copy
from foretrace.tasks.listops import ListOps

RESULTS = Path(__file__).parents[2] / "results"
FOLDERS = sorted(path.parent for path in RESULTS.glob("*/records.jsonl"))
EARLIER = {"online, predicted errors, LRU x 4"}
CONFIG = Config(
    task=Copy(pattern_length=3, padding=1, bits=2, samples=20),
    network=NetworkConfig(depth=2, model_size=6, cell=LRU(4), dropout=0.1),
    optimizer=OptimizerConfig(recurrent_factor=0.5),
    steps=12,
    batch_size=4,
    evaluate_every=5,
    align_every=5,
    validation_sequences=8,
    final_sequences=8,
)
CHANGED, REPLACED = partial(dataclasses.replace, CONFIG), dataclasses.replace
ENTRIES = (
    paper.Entry("online", "LRU x 4", CONFIG, 8.44e-3, (1e-3, 1e-2)),
    paper.Entry("spatial", "LRU x 4", CHANGED(rule="spatial"), 4.66e-1, (1e-2,)),
)
EXPERIMENT = paper.Experiment(
    "table1", "Table 1", "cpu", ENTRIES, "training_loss", (0, 1), search_share=0.5, note="tiny"
)


def run(experiment, folder, **options):
    """Run an experiment that is none of the paper's; return the runs that come next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "load", lambda *_: experiment)
        config = reproduce.Reproduction("table1", **options)
        return reproduce.run(config, folder, show_progress=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    assert run(EXPERIMENT, folder) == []
    return folder


def comparable(folder):
    """Return records without the values that differ between runs: times and machine."""
    changing = ("seconds", "surroundings")
    found = [
        {k: v for k, v in record.items() if k not in changing} for record in read_records(folder)
    ]
    return sorted(found, key=lambda record: str(identity_of(record)))


@pytest.mark.program
def test_an_experiment_searches_its_rates_and_then_runs_its_seeds(whole):
    records = read_records(whole)
    assert [(r["entry"].split(",")[0], r["purpose"], r["seed"]) for r in records] == [
        ("online", "search", 1000),
        ("online", "search", 1000),
        ("online", "report", 0),
        ("online", "report", 1),
        ("spatial", "report", 0),
        ("spatial", "report", 1),
    ]
    tried = {r["rate"]: r["validation"]["loss"] for r in records[:2]}
    assert records[2]["rate"] == records[3]["rate"] == min(tried, key=tried.get)
    assert [r["step"] for r in records] == [6, 6, 12, 12, 12, 12]
    assert records[2]["training_loss"] != records[3]["training_loss"]
    one = records[2]
    assert [point["step"] for point in one["curve"]] == [5, 10, 12]
    assert one["training_loss"] == one["curve"][-1]["training_loss"]
    assert all(len(point["alignment"]["layers"]) == 2 for point in one["curve"])
    assert "alignment" not in records[0]["curve"][0]
    assert one["surroundings"]["packages"]["jax"]
    assert len(list((whole / "runs").iterdir())) == 6


def stop_at(monkeypatch, calls):
    """Ask to stop, as Ctrl-C does, when a run measures for the `calls`-th time."""
    measure, count = _train._Training._measure, iter(range(1, 999))

    def interrupted(*arguments):
        if next(count) == calls:
            signal.raise_signal(signal.SIGINT)
        return measure(*arguments)

    monkeypatch.setattr(_train._Training, "_measure", interrupted)


@pytest.mark.program
@pytest.mark.parametrize("calls", [5, None])
def test_a_stopped_experiment_goes_on_to_the_same_records(
    monkeypatch, tmp_path, capsys, whole, calls
):
    """Stopped while it measures for the so many-th time, or while it writes its last record."""
    monkeypatch.chdir(tmp_path)
    for place in (reproduce, tables):
        monkeypatch.setattr(place, "load", lambda *_: EXPERIMENT)
    records, begin = Path("a run", RECORDS_FILE), ["reproduce", "table1", "--out", "a run"]
    go_on = begin
    if calls is None:
        lines = (whole / RECORDS_FILE).read_bytes().splitlines(keepends=True)
        records.parent.mkdir()
        records.write_bytes(b"".join(lines[:5]) + lines[5][:50])
    else:
        with monkeypatch.context() as patch:
            stop_at(patch, calls)
            assert cli.main(begin) == 130 and len(read_records("a run")) < 6
        said, line = capsys.readouterr().out.splitlines()
        assert said.startswith("stopped before ")
        assert line.strip() == "foretrace resume 'a run'"
        go_on = shlex.split(line)[1:]
    assert cli.main(go_on) == 0
    out, err = capsys.readouterr()
    assert "paper 4.66e-01" in out and "report.md" in out
    assert "spatial, LRU x 4: report, seed 1, rate 0.01" in err
    assert comparable("a run") == comparable(whole)
    before = records.read_bytes()
    for words in (begin, ["check", "a run"], ["report", "a run"]):
        assert cli.main(words) == 0 and records.read_bytes() == before


def record(experiment, job, **values):
    """Return a record of a run as far as it is needed to plan."""
    own = {"experiment": experiment.name, "scale": experiment.scale, "entry": job.entry.name}
    own |= {"purpose": job.purpose, "rate": job.config.optimizer.learning_rate}
    return own | {"config": to_json(job.config), "validation": {"loss": 0.5}} | values


def test_the_reported_runs_have_the_rate_that_was_best_on_validation_and_never_nan():
    entry = ENTRIES[0]
    searched = left(EXPERIMENT, entry, [])
    assert [(job.purpose, job.config.seed) for job in searched] == [("search", 1000)] * 2
    scores = {"loss": math.nan, "accuracy": 0.9}, {"loss": 0.5, "accuracy": 0.1}
    records = [
        record(EXPERIMENT, job, validation=found)
        for job, found in zip(searched, scores, strict=True)
    ]
    assert left(EXPERIMENT, entry, records[:1]) == searched[1:]
    assert left(EXPERIMENT, entry, records) == reports(EXPERIMENT, entry, 1e-2)
    accurate = REPLACED(EXPERIMENT, metric="accuracy")
    assert left(accurate, entry, records) == reports(accurate, entry, 1e-3)


def test_a_run_is_known_by_its_purpose_and_by_what_it_learns_from():
    jobs = [
        job
        for entry in ENTRIES
        for job in (*searches(EXPERIMENT, entry), *reports(EXPERIMENT, entry, 1e-2))
    ]
    records = [record(EXPERIMENT, job) for job in jobs]
    records[0]["validation"] = {"loss": 0.6}

    def lacking(experiment, entries=ENTRIES):
        return [len(left(experiment, entry, records)) for entry in entries]

    assert lacking(EXPERIMENT) == [0, 0]
    assert lacking(REPLACED(EXPERIMENT, seeds=(7, 1))) == [1, 1]
    longer = [REPLACED(e, config=REPLACED(e.config, steps=14)) for e in ENTRIES]
    assert lacking(EXPERIMENT, longer) == [2, 2]
    one = records[0]
    before = identity_of(one)
    one["config"]["an_option_that_is_gone"] = False
    assert identity_of(one) != before
    # A run is the same wherever its data lie.
    table2 = paper.load("table2", "cpu")
    job = reports(table2, table2.entries[0], 1e-2)[0]
    moved = REPLACED(job.config, task=job.config.task.with_data_dir("/some/where"))
    assert identity_in(table2, job._replace(config=moved)) == identity_in(table2, job)


@pytest.mark.program
def test_a_run_that_diverges_is_recorded_and_not_repeated(tmp_path):
    config = CHANGED(steps=40, optimizer=OptimizerConfig(schedule="constant", clip=None))
    entry = paper.Entry("online", "LRU x 4", config, 8.44e-3, (1e30,))
    experiment = REPLACED(EXPERIMENT, entries=(entry,), seeds=(0,))
    for _ in range(2):
        assert run(experiment, tmp_path) == []
        (found,) = read_records(tmp_path)
        assert math.isnan(found["training_loss"]) and math.isnan(found["test"]["loss"])


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_committed_record_is_one_of_the_runs_that_are_planned(folder):
    records = read_records(folder)
    experiment = paper.load(records[0]["experiment"], records[0]["scale"])
    entries = {entry.name: entry for entry in experiment.entries}
    # Entries whose settings were deleted stay in the records, and are planned no more.
    for found in (found for found in records if found["entry"] not in EARLIER):
        entry, rate = entries[found["entry"]], found["rate"]
        share = found["step"] / entry.config.steps
        plan = REPLACED(experiment, seeds=(found["seed"],), search_share=share)
        jobs = searches(plan, REPLACED(entry, rates=(rate, 1.0))), reports(plan, entry, rate)
        job = jobs[found["purpose"] == "report"][0]
        assert identity_of(found) == identity_in(plan, job)


@pytest.mark.parametrize("name", paper.NAMES)
def test_every_scale_is_named_and_the_smallest_has_one_program_an_entry(name):
    for scale in paper.scales(name):
        experiment = paper.load(name, scale)
        assert experiment.name == name and experiment.scale == scale and experiment.note
        assert len({entry.name for entry in experiment.entries}) == len(experiment.entries)
    smoke = paper.load(name, "smoke")
    assert 1 < len(smoke.entries) <= 3
    assert {entry.name for entry in smoke.entries} <= {e.name for e in paper.load(name).entries}
    for entry in smoke.entries:  # searched and reported by one program
        found = [job.config for job in (*searches(smoke, entry), *reports(smoke, entry, 1.0))]
        assert len(found) <= 4 and len(set(map(shared, found))) == 1


SIZES = {"LRU x 4": 268_430, "linear RNN x 4": 267_956, "GRU x 1": 269_488, "GRU x 4": 270_011}
SIZES |= {"ListOps": 1_063_178, "sCIFAR, linear RNN": 1_068_086}


def test_published_cells_have_the_published_sizes():
    tables = [paper.load(name, "paper").entries for name in ("table1", "table2", "table3")]
    entries = {entry.column: entry.config for entries in tables for entry in entries}
    for column, count in SIZES.items():
        task, network = entries[column].task, entries[column].network
        draw = partial(network.drawn, task.input_size, task.output_size)
        made = jax.eval_shape(draw, jax.random.key(0))
        assert sum(leaf.size for leaf in jax.tree.leaves(made)) == count


def test_the_page_on_the_reproduction_is_what_the_records_say(tmp_path):
    written, *figures = write_report(read_all([*FOLDERS, *FOLDERS]), tmp_path)
    page = written.read_text()
    assert page == (RESULTS / "paper" / "report.md").read_text()
    assert len(figures) == 3
    assert all(f"]({path.name})" in page and path.stat().st_size > 1000 for path in figures)


def taken(folder, _):
    """Put a file of a user where the first run of the experiment would be."""
    smoke = paper.load("table1", "smoke")
    place = run_in(folder / "runs", left(smoke, smoke.entries[0], [])[0].config).path
    place.mkdir(parents=True)
    (place / "file").write_text("mine")


def held(folder, stack):
    create(folder, reproduce.Reproduction("table1"))
    stack.enter_context(locked(folder))


def of(config):
    return lambda folder, _: create(folder, config)


@pytest.mark.parametrize(
    ("before", "words", "message"),
    [
        (None, "table1 --scale long", "no scale 'long' of table1; there are smoke, cpu, paper"),
        (None, "table1 --only lstm", "no entry of table1 contains lstm; there are: online, LRU"),
        (None, "table1 --rates -1.0", "none may be negative"),
        (None, "table2 --only sCIFAR", "absent"),
        (of(CONFIG), "table1", "holds a run of another command"),
        (of(reproduce.Reproduction("table2")), "table1", "experiment"),
        (held, "table1 --seeds 7", "by another foretrace process"),
        (taken, "table1 --scale smoke", "holds files already"),
    ],
)
def test_what_cannot_begin_is_one_clear_message_and_changes_nothing(
    capsys, tmp_path, monkeypatch, before, words, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORETRACE_DATA", "absent")
    with contextlib.ExitStack() as stack:
        if before is not None:
            words += " --out run"
            before(Path("run"), stack)
        contents = {path: path.read_bytes() for path in Path().rglob("*") if path.is_file()}
        assert cli.main(["reproduce", *words.split()]) == 2
        assert {path: path.read_bytes() for path in contents} == contents
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
    assert not list(tmp_path.rglob(RECORDS_FILE))


@pytest.mark.program
def test_a_task_of_stored_sequences_keeps_its_best_network(tmp_path):
    task = ListOps(samples=12, held_out=7, min_length=3, max_length=12)
    config = CHANGED(
        task=task, steps=9, evaluate_every=3, align_every=None, final_sequences=100, keep_best=True
    )
    entry = paper.Entry("online", "ListOps", config, 0.3762, (1e-2,))
    experiment = REPLACED(EXPERIMENT, name="table2", entries=(entry,), metric="accuracy")
    assert run(experiment, tmp_path) == []
    for found in read_records(tmp_path):
        accuracies = [point["accuracy"] for point in found["curve"]]
        assert found["validation"]["accuracy"] == max(accuracies)
        assert found["best_step"] == 3 * (1 + accuracies.index(max(accuracies)))
