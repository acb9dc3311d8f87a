"""An experiment ends with equal records however often it stops, beside the paper's numbers."""

import dataclasses
import math
import shlex
import signal
from pathlib import Path

import jax
import pytest

from foretrace import paper
from foretrace._options.cells import LRU
from foretrace._options.network import NetworkConfig
from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.directory import RunError, create
from foretrace._runs.files import LockedError, locked
from foretrace._runs.many import run_in
from foretrace._runs.metrics import MetricsLog
from foretrace.cli import _main as cli
from foretrace.experiment import _train
from foretrace.experiment._config import Config, OptimizerConfig
from foretrace.experiment._program import shared
from foretrace.paper import _reproduce as reproduce
from foretrace.paper import _tables as tables
from foretrace.paper._jobs import identity_in, left, reports, searches
from foretrace.paper._page import read_all, write_report
from foretrace.paper._records import RECORDS_FILE, identity, identity_of, read_records
from foretrace.paper._tables import collect, markdown
from foretrace.tasks.copy import Copy
from foretrace.tasks.listops import ListOps

pytestmark = pytest.mark.usefixtures("default_promotion")

RESULTS = Path(__file__).parents[2] / "results"
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
ENTRIES = (
    paper.Entry("online", "LRU x 4", CONFIG, 8.44e-3, (1e-3, 1e-2)),
    paper.Entry(
        "spatial", "LRU x 4", dataclasses.replace(CONFIG, rule="spatial"), 4.66e-1, (1e-2,)
    ),
)
EXPERIMENT = paper.Experiment(
    "table1",
    "Table 1",
    "cpu",
    ENTRIES,
    "training_loss",
    seeds=(0, 1),
    search_share=0.5,
    note="tiny",
)


def run(experiment, folder, **options):
    """Run an experiment that is none of the paper's; return the runs that come next."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reproduce, "load", lambda *_: experiment)
        config = reproduce.Reproduction("table1", **options)
        return reproduce.run(config, folder, show_progress=False)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, default_promotion):
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


def assert_same(a, b):
    assert comparable(a) == comparable(b)


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
    assert one["curve"][-1]["refused"] == 0
    assert all(len(point["alignment"]["layers"]) == 2 for point in one["curve"])
    assert "alignment" not in records[0]["curve"][0]
    config = from_json(Config, one["config"])
    assert (
        config.seed == 0
        and config.optimizer.learning_rate == one["rate"]
        and config.rule == "online"
    )
    assert one["surroundings"]["packages"]["jax"]
    runs = list((whole / "runs").iterdir())
    assert len(runs) == 6 and all((run / "checkpoint.safetensors").exists() for run in runs)


def stop_at(monkeypatch, calls):
    """Ask to stop, as Ctrl-C does, when a run measures for the `calls`-th time."""
    measure, count = _train._Training._measure, iter(range(1, 999))

    def interrupted(*arguments):
        if next(count) == calls:
            signal.raise_signal(signal.SIGINT)
        return measure(*arguments)

    monkeypatch.setattr(_train._Training, "_measure", interrupted)


@pytest.mark.program
@pytest.mark.parametrize("calls", [1, 5, 12])
def test_a_stopped_experiment_goes_on_to_the_same_records(monkeypatch, tmp_path, whole, calls):
    stop_at(monkeypatch, calls)
    assert run(EXPERIMENT, tmp_path) and len(read_records(tmp_path)) < 6
    assert run(EXPERIMENT, tmp_path) == []
    assert_same(tmp_path, whole)
    before = (tmp_path / "records.jsonl").read_bytes()
    assert run(EXPERIMENT, tmp_path) == []
    assert (tmp_path / "records.jsonl").read_bytes() == before


@pytest.mark.program
def test_runs_of_other_seeds_and_rates_in_the_folder_are_not_counted(whole):
    records = read_records(whole)

    def lacking(experiment, entries=ENTRIES):
        return [len(left(experiment, entry, records)) for entry in entries]

    assert lacking(EXPERIMENT) == [0, 0]
    assert lacking(dataclasses.replace(EXPERIMENT, seeds=(7, 1))) == [1, 1]
    other = min({1e-3, 1e-2} - {records[2]["rate"]})
    assert lacking(EXPERIMENT, EXPERIMENT.with_rates((other,)).entries)[0] == 2
    longer = [
        dataclasses.replace(e, config=dataclasses.replace(e.config, steps=14)) for e in ENTRIES
    ]
    assert lacking(EXPERIMENT, longer) == [2, 2]


@pytest.mark.program
def test_a_torn_line_is_written_again(tmp_path, whole):
    lines = (whole / "records.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(b"".join(lines[:5]) + lines[5][:50])
    assert run(EXPERIMENT, tmp_path) == []
    assert_same(tmp_path, whole)


@pytest.mark.program
def test_what_is_there_is_left_alone(tmp_path):
    with pytest.raises(
        ValueError, match="no entry of table1 contains lstm; there are: online, LRU x 4; spatial"
    ):
        run(EXPERIMENT, tmp_path, only=("lstm",))
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot write the run directory"):
        run(EXPERIMENT, tmp_path / "file")


def test_one_process_at_a_time(tmp_path):
    with locked(tmp_path), pytest.raises(LockedError, match="by another foretrace process"):
        run(EXPERIMENT, tmp_path)


def test_the_reported_runs_have_the_rate_that_was_best_on_validation_and_never_nan():
    entry = ENTRIES[0]
    searched = left(EXPERIMENT, entry, [])
    assert [(job.purpose, job.config.seed) for job in searched] == [("search", 1000)] * 2

    def record(job, loss, accuracy):
        kind = {"experiment": "table1", "scale": "cpu", "entry": entry.name, "purpose": "search"}
        rate = job.config.optimizer.learning_rate
        scores = {"validation": {"loss": loss, "accuracy": accuracy}}
        return kind | scores | {"rate": rate, "config": to_json(job.config)}

    records = [record(searched[0], math.nan, 0.9), record(searched[1], 0.5, 0.1)]
    assert left(EXPERIMENT, entry, records[:1]) == searched[1:]
    assert left(EXPERIMENT, entry, records) == reports(EXPERIMENT, entry, 1e-2)
    accurate = dataclasses.replace(EXPERIMENT, metric="accuracy")
    assert left(accurate, entry, records) == reports(accurate, entry, 1e-3)


@pytest.mark.program
def test_a_run_that_diverges_is_recorded_and_not_repeated(tmp_path):
    optimizer = OptimizerConfig(schedule="constant", clip=None)
    config = dataclasses.replace(CONFIG, steps=40, optimizer=optimizer)
    entry = paper.Entry("online", "LRU x 4", config, 8.44e-3, (1e30,))
    experiment = dataclasses.replace(EXPERIMENT, entries=(entry,), seeds=(0,))
    for _ in range(2):
        assert run(experiment, tmp_path) == []
        (record,) = read_records(tmp_path)
        assert math.isnan(record["training_loss"]) and math.isnan(record["test"]["loss"])


@pytest.mark.program
def test_a_record_keeps_its_identity_when_a_setting_is_added_and_has_another_with_an_unknown_one(
    whole,
):
    record = read_records(whole)[0]
    before = identity_of(record)
    del record["config"]["network"]["cumulative_mean"]
    assert identity_of(record) == before
    record["config"]["an_option_that_is_gone"] = False
    assert identity_of(record) != before
    del record["config"]["an_option_that_is_gone"]
    record["config"]["network"]["dropout"] = 0.2
    assert identity_of(record) != before


@pytest.mark.parametrize(
    "folder", sorted(path.parent.name for path in RESULTS.glob("*/records.jsonl"))
)
def test_every_committed_record_is_one_of_the_runs_that_are_planned(folder):
    records = read_records(RESULTS / folder)
    experiment = paper.load(records[0]["experiment"], records[0]["scale"])
    for entry in experiment.entries:
        own = [record for record in records if record["entry"] == entry.name]
        rates = tuple(sorted({record["rate"] for record in own})) or entry.rates
        searched = {record["step"] for record in own if record["purpose"] == "search"} or {
            entry.config.steps
        }
        plan = dataclasses.replace(
            experiment.with_rates(rates),
            seeds=tuple({record["seed"] for record in own if record["purpose"] == "report"}),
            search_share=max(searched) / entry.config.steps,
        )
        (one,) = [one for one in plan.entries if one.name == entry.name]
        jobs = [*searches(plan, one), *(job for rate in rates for job in reports(plan, one, rate))]
        assert {*map(identity_of, own)} <= {identity_in(plan, job) for job in jobs}
    # Entries whose settings were deleted stay in the records, and are planned no more.
    assert {record["entry"] for record in records} - {
        entry.name for entry in experiment.entries
    } <= EARLIER


def test_a_run_is_the_same_wherever_its_data_lie():
    config = paper.load("table2", "cpu").entries[0].config
    moved = dataclasses.replace(config, task=config.task.with_data_dir("/some/where"))
    kind = ("table2", "cpu", "online, sCIFAR", "report")
    assert identity(*kind, moved) == identity(*kind, config)


@pytest.mark.parametrize("name", paper.NAMES)
def test_experiments_are_as_large_as_they_say(name):
    for scale in paper.scales(name):
        experiment = paper.load(name, scale)
        assert experiment.name == name and experiment.scale == scale and experiment.note
        assert len({entry.name for entry in experiment.entries}) == len(experiment.entries)
        for entry in experiment.entries:
            epoch = entry.config.task.samples // entry.config.batch_size
            # One epoch, all of a run at full length, is looked at four times.
            looks = 4 if scale == "long" else 1
            assert entry.config.steps % epoch == 0 and entry.config.evaluate_every == epoch // looks
    assert paper.load(name, "paper").entries[0].config.steps >= 25 * 400


def test_long_sequences_are_those_of_the_paper():
    whole = {entry.column: entry for entry in paper.load("table2", "paper").entries}
    for long in paper.load("table2", "long").entries:
        paper_size = whole[long.column.removesuffix(", 3 epochs")]
        for field in ("pool", "max_length", "min_length"):
            assert getattr(long.config.task, field, None) == getattr(
                paper_size.config.task, field, None
            )
    with pytest.raises(ValueError, match="no scale 'long' of table1; there are smoke, cpu, paper"):
        paper.load("table1", "long")


@pytest.mark.full
def test_published_cells_have_the_published_sizes():
    counts = {}
    for name in ("table1", "table2", "table3"):
        for entry in paper.load(name, "paper").entries:
            key = jax.random.key(0)
            network = jax.eval_shape(
                lambda key, c=entry.config: c.network.drawn(
                    c.task.input_size, c.task.output_size, key
                ),
                key,
            )
            counts[entry.column] = sum(leaf.size for leaf in jax.tree.leaves(network))
    assert counts["LRU x 4"] == 268_430 and counts["linear RNN x 4"] == 267_956
    assert counts["GRU x 1"] == 269_488 and counts["GRU x 4"] == 270_011
    assert counts["ListOps"] == 1_063_178 and counts["sCIFAR, linear RNN"] == 1_068_086


@pytest.mark.program
def test_the_report_has_the_papers_number_beside_ours(whole, tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "load", lambda *_: EXPERIMENT)
    records = read_all([whole, whole])
    assert len(records) == 6
    text = markdown(records)
    cell = next(c for c in collect(records)[0].cells if c.entry.row == "online")
    number = f"**{cell.mean:.2e}** ± {cell.spread:.2e} (2 seeds, rate {cell.records[0]['rate']:g}, "
    after = text[text.index(number) + len(number) :]
    assert after.startswith("whole sequences")
    assert "); paper 8.44e-03" in after[: after.index("|")]
    assert "scale `cpu`" in text and "tiny" in text and "search" in text
    assert write_report(records, tmp_path / "out") == [tmp_path / "out" / "report.md"]
    assert (tmp_path / "out" / "report.md").read_text() == text
    with pytest.raises(RunError, match="holds no records"):
        read_all([tmp_path])


def test_the_page_on_the_reproduction_is_what_the_records_say(tmp_path):
    folders = sorted(path.parent for path in RESULTS.glob("*/records.jsonl"))
    written, *figures = write_report(read_all(folders), tmp_path)
    page = written.read_text()
    assert page == (RESULTS / "paper" / "report.md").read_text()
    assert len(figures) == 3
    assert all(f"]({path.name})" in page and path.stat().st_size > 1000 for path in figures)


def test_every_run_has_its_row_with_the_tree_that_it_came_from():
    entry = paper.load("table1", "paper").entries[0]
    record = {
        "experiment": "table1",
        "scale": "paper",
        "entry": entry.name,
        "training_loss": 0.01,
        "validation": {"loss": 0.5},
        "seed": 0,
        "rate": 0.001,
        "seconds": 1.0,
    }
    place = {"cores": 2, "devices": "cpu"}
    search = {"purpose": "search", "step": 400, "test": None}
    report = {"purpose": "report", "step": 10_000, "test": {"loss": 0.02, "accuracy": 1.0}}
    page = markdown(
        [
            record | search | {"surroundings": place | {"commit": "ab-dirty"}},
            record | report | {"surroundings": place | {"commit": "0123456789"}},
        ]
    )
    row = f"| {entry.name} | search | 0 | 0.001 | 400 | 1.00e-02 | 0.5 |  |  | 1 |"
    assert f"{row} ab-dirty, modified | 2 cores, cpu |" in page
    row = f"| {entry.name} | report | 0 | 0.001 | 10000 | 1.00e-02 | 0.5 | 2.00e-02 | 100.00% |"
    assert f"{row} 1 | 01234567 | 2 cores, cpu |" in page


def test_unknown_records_are_named(tmp_path):
    with MetricsLog(tmp_path / RECORDS_FILE) as log:
        log.write("run", 1, experiment="table9", scale="cpu")
    with pytest.raises(ValueError, match="table9"):
        markdown(read_records(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("reproduce table9", "table9"),
        ("reproduce table1 --scale tiny", "tiny"),
        ("reproduce table1 --only lstm", "no entry of table1 contains lstm"),
        ("reproduce table1 --rates -1.0", "none may be negative"),
        ("reproduce table2 --only sCIFAR", "absent"),
        ("report", "report needs"),
    ],
)
def test_bad_input_is_one_clear_message(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORETRACE_DATA", "absent")
    assert cli.main(arguments.split()) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err
    assert not list(tmp_path.rglob("records.jsonl"))


@pytest.mark.program
def test_an_experiment_on_the_command_line_is_resumed_by_its_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for place in (reproduce, tables):
        monkeypatch.setattr(place, "load", lambda *_: EXPERIMENT)
    words = ["reproduce", "table1", "--out", "a run", "--only", "spatial"]
    with monkeypatch.context() as patch:
        stop_at(patch, 1)
        assert cli.main(words) == 130
    said = capsys.readouterr().out
    assert "stopped before spatial, LRU x 4: report, seed 0, rate 0.01" in said
    assert said.endswith("foretrace resume 'a run'\n")
    assert cli.main(shlex.split(said.splitlines()[-1])[1:]) == 0
    out, err = capsys.readouterr()
    assert "paper 4.66e-01" in out and "report.md" in out
    assert "spatial, LRU x 4: report, seed 0, rate 0.01" in err
    before = (tmp_path / "a run" / "records.jsonl").read_bytes()
    assert cli.main(words) == 0 and (tmp_path / "a run" / "records.jsonl").read_bytes() == before
    assert cli.main(["check", "a run"]) == 0 and cli.main(["report", "a run"]) == 0


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("config", "message"),
    [(CONFIG, "holds a run of another command"), (reproduce.Reproduction("table2"), "experiment")],
)
def test_the_folder_of_another_run_is_refused_and_stays_as_it_is(tmp_path, capsys, config, message):
    run = create(tmp_path / "run", config).path
    before = contents(run)
    assert cli.main(["reproduce", "table1", "--out", str(run)]) == 2
    assert message in capsys.readouterr().err and contents(run) == before


def test_a_refused_experiment_changes_nothing(tmp_path, capsys):
    run = create(tmp_path / "run", reproduce.Reproduction("table1")).path
    with locked(run):
        before = contents(run)
        assert cli.main(["reproduce", "table1", "--seeds", "7", "--out", str(run)]) == 2
        assert contents(run) == before
    assert "by another foretrace process" in capsys.readouterr().err


def test_a_run_directory_that_cannot_be_used_ends_the_experiment(tmp_path):
    job = left(EXPERIMENT, ENTRIES[0], [])[0]
    place = run_in(tmp_path / "runs", job.config).path
    place.mkdir(parents=True)
    (place / "file").write_text("mine")
    with pytest.raises(RunError, match="holds files already"):
        run(EXPERIMENT, tmp_path)


@pytest.mark.program
def test_a_task_of_stored_sequences_keeps_its_best_network(tmp_path):
    task = ListOps(samples=12, held_out=7, min_length=3, max_length=12)
    config = dataclasses.replace(
        CONFIG,
        task=task,
        steps=9,
        evaluate_every=3,
        align_every=None,
        final_sequences=100,
        keep_best=True,
    )
    entry = paper.Entry("online", "ListOps", config, 0.3762, (1e-2,))
    experiment = dataclasses.replace(EXPERIMENT, name="table2", entries=(entry,), metric="accuracy")
    assert run(experiment, tmp_path) == []
    for record in read_records(tmp_path):
        accuracies = [point["accuracy"] for point in record["curve"]]
        assert record["validation"]["accuracy"] == max(accuracies)
        assert record["best_step"] == 3 * (1 + accuracies.index(max(accuracies)))
        # Seven sequences in batches of four: each counts once.
        assert record["test"]["accuracy"] * 7 == pytest.approx(
            round(record["test"]["accuracy"] * 7)
        )


def test_a_bar_in_a_name_does_not_end_its_cell():
    from foretrace.paper._tables import _row

    assert _row(["|lam| from 0", "1"]) == r"| \|lam\| from 0 | 1 |"


def test_the_scale_smoke_has_an_entry_of_each_kind_and_one_program_for_search_and_report():
    smoke, whole = (paper.load("table1", scale) for scale in ("smoke", "paper"))
    names = [entry.name for entry in smoke.entries]
    assert len(names) == 3 and set(names) <= {entry.name for entry in whole.entries}
    for entry in smoke.entries:
        found = [job.config for job in (*searches(smoke, entry), *reports(smoke, entry, 1.0))]
        assert len(found) == 4 and len(set(map(shared, found))) == 1
