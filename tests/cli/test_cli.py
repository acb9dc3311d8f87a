"""The command line: clear errors, and runs that survive Ctrl-C and kill -9."""

import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from foretrace._options.cells import GRU, LRU, LinearRNN, MinGRU
from foretrace._options.network import NetworkConfig
from foretrace.cli import _main as cli
from foretrace.cli._options import COMMANDS
from foretrace.experiment._config import Config
from foretrace.sweep._space import applied

LSTD = "rl t-maze --rule reservoir --agent.optimizer lstd --agent.method sarsa --steps 10"
NETWORK = "--network.depth=2 --network.model-size=6 --state-size=4"
TASK = "--task.pattern-length=3 --task.padding=1 --task.bits=2 --batch-size=2"
STEPS = 1500
RECORDS = "--log-every=25 --evaluate-every=500 --align-every=1000 --checkpoint-every=100"
SEQUENCES = "--validation-sequences=4 --final-sequences=20"
TINY = [*NETWORK.split(), *TASK.split(), f"--steps={STEPS}", *RECORDS.split(), *SEQUENCES.split()]


@pytest.fixture(scope="module")
def start(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")

    def start(*arguments):
        command = [sys.executable, "-m", "foretrace", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=folder, text=True, **pipes)

    start.folder = folder
    return start


def finish(process):
    out, err = process.communicate(timeout=240)
    return process.returncode, out, err


@pytest.fixture(scope="module")
def whole(start):
    code, out, err = finish(start("train", "copy", "--run-dir", "whole", *TINY))
    assert code == 0
    return start.folder / "whole", out, err


@pytest.mark.program
def test_a_run_ends_with_a_table_and_says_where_its_records_are(whole):
    path, out, err = whole
    assert "bits recalled" in out and "this run" in out
    for name in ("config.json", "metrics.jsonl", "checkpoint.safetensors", "curves.png"):
        assert (path / name).stat().st_size > 0 and name in out
    assert f"step 1/{STEPS}, loss" in err and "\x1b" not in err  # plain lines, no terminal here


@pytest.mark.program
def test_an_interrupt_ends_the_process_before_any_clean_up():
    code = """
import atexit, sys
from foretrace.cli import _main
def interrupted(*_): raise KeyboardInterrupt
atexit.register(print, "cleaned up")
_main._run = interrupted
sys.argv = ["foretrace", "report", "run"]
_main.run()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (cli.STOPPED, "", "foretrace: stopped\n")


@pytest.mark.program
def test_export_writes_the_network_of_a_run(start, whole):
    code, out, err = finish(start("export", "whole", "--out", "step.stablehlo", "--learn"))
    assert code == 0
    assert out.count("kB") == 3
    state, trained = (
        load_file(start.folder / "step.state.safetensors"),
        load_file(whole[0] / "checkpoint.safetensors"),
    )
    np.testing.assert_array_equal(
        state["network.encoder.weight"], trained["network.encoder.weight"]
    )


@pytest.mark.program
def test_report_and_align_read_a_run(start, whole):
    report = start("report", "whole")
    align = start("align", "whole", "--rule", "hybrid")
    code, out, _ = finish(report)
    assert code == 0 and f"{STEPS} of {STEPS}" in out
    code, out, _ = finish(align)
    assert code == 0 and "cell.nu_log" in out
    rows = {
        line.split("│")[1].strip(): line.split("│")[2:-1]
        for line in out.splitlines()
        if line.count("│") > 3
    }
    assert [float(x) for x in rows["reservoir"]][:2] == [0, 0]
    assert float(rows["online"][1]) == pytest.approx(1, abs=1e-3)  # the last layer is exact


def run(capsys, *arguments):
    """Run a command in this process."""
    return cli.main(arguments), *capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "chunk", "said"), [("", 8, "chunks of 8 steps"), ("--chunk None", None, "whole")]
)
def test_align_runs_the_rules_in_chunks_and_says_so(words, chunk, said):
    """Whole sequences show the rules that use the chunk as exact."""
    from foretrace._engine.alignment import Alignment
    from foretrace.experiment._report import alignment_tables

    command = cli._parse(f"align copy {words}".split())
    assert command.chunk == chunk
    found = {
        "online": Alignment(
            {"decoder.linear.weight": 1.0}, {"decoder.linear.weight": 1.0}, np.ones(2), 1.0
        )
    }
    caption = str(alignment_tables(found, "online", Config(chunk=command.chunk))[0].caption)
    assert f"in {said}" in caption and "20 validation sequences" in caption


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("strem", "no command 'strem'; did you mean stream?"),
        ("rport run --help", "no command 'rport'; did you mean report?"),
        ("--rows xyz", "no command '--rows'; expected one of train, sweep, rl, stream,"),
        ("xyz", "no command 'xyz'; expected one of train, sweep, rl, stream,"),
        ("train smnits", "no task 'smnits' of train; did you mean smnist?"),
        ("sweep rl copy", "no task 'copy' of rl; expected one of memory-chain,"),
    ],
)
def test_an_unknown_command_is_one_line_with_the_nearest_one(capsys, words, message):
    code, out, err = run(capsys, *words.split())
    assert code == 2 and out == "" and err.count("\n") == 1 and message in err


def test_a_closed_standard_output_is_one_clear_line(capsys, monkeypatch):
    for words in (["--help"], ["--version"], ["stream", "a.csv", "--predictions", "-"]):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", None)  # as Python has it after `>&-`
            assert cli.main(words) == 2
        assert capsys.readouterr().err == (
            "foretrace: error: standard output is closed; send it to a file, or to /dev/null\n"
        )


def test_version(capsys):
    code, out, _ = run(capsys, "--version")
    assert code == 0 and out.startswith("foretrace 0.")


@pytest.mark.parametrize("command", [[], ["train"], ["train", "copy"], ["align"], ["report"]])
def test_help_explains(capsys, command):
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0
    text = " ".join(out.split())
    expected = {"": "align", "train": "--optimizer.clip", "align": "--chunk", "report": "PATH"}
    assert expected[command[0] if command else ""] in text
    if command[:1] == ["train"]:
        assert "largest global norm of a gradient" in text and "elementwise-lstm" in text


@pytest.mark.program
def test_a_reader_of_the_help_may_leave():
    command = [sys.executable, "-m", "foretrace", "stream", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("command", ["", "train copy", "sweep copy", "align copy", "reproduce"])
def test_help_is_shown_and_nothing_is_run(capsys, command):
    code, out, _ = run(capsys, *command.split(), "--help")
    assert code == 0 and f"usage: foretrace {command.split()[0] if command else ''}".strip() in out
    assert ("--network.glu" in out) == (command.split()[:1] in (["train"], ["sweep"], ["align"]))


def test_options_that_may_be_none(capsys):
    parsed = [
        cli._parse(f"train copy {words}".split())
        for words in ("--chunk None", "--chunk 3", "--optimizer.clip None")
    ]
    assert [(p.config.chunk, p.config.optimizer.clip) for p in parsed] == [
        (None, 1.0),
        (3, 1.0),
        (None, None),
    ]
    cell = "train copy --cell s5 --timescales"
    assert cli._parse([*cell.split(), "1", "9.5"]).config.network.cell.timescales == (1.0, 9.5)
    code, _, err = run(capsys, *cell.replace("s5", "lru").split(), "1")
    assert code == 2 and "--timescales" in err
    default = Config(network=NetworkConfig(cell=MinGRU(3, (1, 9))))
    assert applied(default, {"timescales": None}).network.cell == MinGRU(3)
    assert applied(default, {"state-size": None}).network.cell == MinGRU(None, (1, 9))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train paste", "paste"),
        ("train --cell gru --r-min 0.5", "r_min is no option of the cell gru"),
        ("train --cell lru --state-size None", "state_size=None must be a whole number"),
        ("train --cell gru --timescales None", "timescales is no option of the cell gru"),
        ("train copy --stps 3", "--steps"),
        ("train copy --steps three", "steps"),
        ("train copy --steps 0", "steps=0"),
        ("train copy --rule bptt2", "bptt"),
        ("train copy --task.bits 0", "bits=0"),
        ("train copy --network.depth 0 --run-dir new", "depth=0"),
        ("train copy --optimizer.clip -1 --run-dir new", "clip=-1"),
        ("train copy --resume", "--resume"),
        (
            f"{LSTD} --network.no-cumulative-mean",
            "--network.no-cumulative-mean does not fit agent.optimizer=lstd",
        ),
        ("resume", "PATH"),
        ("resume absent", "no run at absent"),
        ("train copy --run-dir file", "file"),
        ("train copy --run-dir file/new", "cannot write the run directory file/new"),
        ("train copy --run-dir .", "holds files already"),
        ("report absent", "no run at absent"),
        ("align absent", "absent"),
        ("align file", "no run at file"),
        ("export absent --out step.onnx", "absent"),
        ("export . --out step.onnx", "no run at ."),
        ("export . --out step.onnx --format tf", "stablehlo"),
    ],
)
def test_bad_input_is_one_clear_message(capsys, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    code, out, err = run(capsys, *arguments.split())
    assert code == 2
    assert message in err and "Traceback" not in err and out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (
        tmp_path / "file"
    ).read_text() == "mine"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("train scifar --steps 3", "warmup_steps=1000 must be below steps=3"),
        ("train scifar --run-dir .", "holds files already"),
        ("train scifar --rule online(depth=1,modules=2)", "modules are for runs in chunks"),
        ("train scifar --rule bptt(depth=1)", "BPTT(depth=1)"),
    ],
)
def test_what_needs_no_data_is_refused_before_any_are_read(
    capsys, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORETRACE_DATA", "absent")  # data that are asked for would be the error
    (tmp_path / "file").write_text("mine")
    code, _, err = run(capsys, *arguments.split())
    assert code == 2 and message in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("command", ["train copy --lerning-rate 1", "stream x --horison 3"])
def test_a_wrong_option_is_compared_with_those_of_its_command_alone(capsys, monkeypatch, command):
    monkeypatch.setenv("COLUMNS", "80")
    code, _, err = run(capsys, *command.split())
    assert code == 2 and len(err.splitlines()) <= 30
    name = command.split()[0]
    others = [other for other in COMMANDS if other != name and f"foretrace {other} " in err]
    assert f"foretrace {name}" in err and not others


def test_short_names_are_those_of_the_long_ones():
    short, long = (
        cli._parse(f"train copy --steps 7 {words}".split()).config
        for words in (
            "--lr 0.1 --depth 3 --model-size 16 --dropout 0.2 --cell=min-gru --timescales 1 9",
            "--network.cell min-gru --optimizer.learning-rate 0.1 --network.depth 3 "
            "--network.model-size 16 --network.dropout 0.2 --network.timescales 1 9",
        )
    )
    assert short == long
    assert cli._parse(["train", "scifar", "--data-dir", "here"]).config.task.data_dir == "here"
    assert cli._parse(["stream", "x.csv", "--lr", "0.5"]).config.model.learning_rate == 0.5


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("train --cell gru --state-size 64", GRU(64)),
        ("train scifar --state-size 7", LRU(7, 0.9, 0.999)),  # the options of the task's cell stay
        ("train scifar --cell lru", LRU(128, 0.9, 0.999)),
        ("train scifar --cell linear-rnn", LinearRNN()),  # and are of no other cell
        ("rl t-maze --cell gru --steps 7", GRU()),
    ],
)
def test_a_cell_is_a_name_with_flat_options(line, cell):
    assert cli._parse(line.split()).config.network.cell == cell


@pytest.mark.full
@pytest.mark.usefixtures("standard_promotion")
def test_a_rule_that_leaves_parameters_untrained_says_so(capsys, tmp_path):
    words = [*TINY, "--rule", "spatial", "--steps", "1", "--run-dir", tmp_path / "run"]
    code, _, err = run(capsys, "train", "copy", *map(str, words))
    assert code == 0 and "foretrace: warning: " in err and "nu_log" in err


def test_unexpected_errors_are_one_line_too_unless_asked(capsys, monkeypatch):
    def fail(*_):
        raise RuntimeError("a\nbug")

    monkeypatch.setattr(cli, "_run", fail)
    code, _, err = run(capsys, "report", ".")
    assert code == 1 and err.count("\n") == 1
    assert "RuntimeError: a bug" in err and "FORETRACE_DEBUG=1" in err
    monkeypatch.setenv("FORETRACE_DEBUG", "1")
    code, _, err = run(capsys, "report", ".")
    assert code == 1 and "Traceback" in err
