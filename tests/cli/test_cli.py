"""The command line: clear errors, and runs that survive Ctrl-C and kill -9."""

import contextlib
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import printed
from safetensors.numpy import load_file

from foretrace._engine.alignment import Alignment
from foretrace._options.cells import GRU, LRU, RTU, S5, Beside, LinearRNN, MinGRU
from foretrace._options.network import NetworkConfig
from foretrace.cli import _help
from foretrace.cli import _main as cli
from foretrace.cli._options import COMMANDS
from foretrace.experiment._config import Config
from foretrace.experiment._report import alignment_tables
from foretrace.sweep._space import applied

NETWORK = "--network.depth=2 --network.model-size=6 --state-size=4"
TASK = "--task.pattern-length=3 --task.padding=1 --task.bits=2 --batch-size=2"
SHORT = "--steps=40 --align-every=None --validation-sequences=4 --final-sequences=20"
TINY = f"{NETWORK} {TASK} {SHORT}".split()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the folder of a run, and what its command has printed."""
    out, err = io.StringIO(), io.StringIO()
    folder = tmp_path_factory.mktemp("runs") / "whole"
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        assert cli.main(["train", "copy", "--run-dir", str(folder), *TINY]) == 0
    return folder, out.getvalue(), err.getvalue()


@pytest.mark.program
def test_a_run_ends_with_a_table_and_says_where_its_records_are(whole, capsys):
    path, out, err = whole
    assert "bits recalled" in out and "this run" in out and "40 of 40" in out
    for name in ("config.json", "metrics.jsonl", "checkpoint.safetensors"):
        assert (path / name).stat().st_size > 0 and name in out
    assert "step 1/40, loss" in err and "\x1b" not in err  # plain lines, no terminal here
    whole, said = out.split("curves: ")
    assert not (path / "curves.png").exists()
    code, again, _ = run(capsys, *shlex.split(said)[1:])
    table = whole.split("└")[0]  # the report counts operations below it
    assert code == 0 and again.startswith(table) and "curves.png" in again[len(table) :]
    assert (path / "curves.png").read_bytes().startswith(b"\x89PNG")


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
def test_export_and_align_take_the_network_of_a_run(whole, capsys, tmp_path):
    path = whole[0]
    code, out, _ = run(capsys, "export", str(path), "--out", str(tmp_path / "step"), "--learn")
    assert code == 0 and out.count("kB") == 3
    files = tmp_path / "step.state.safetensors", path / "checkpoint.safetensors"
    state, trained = (load_file(file)["network.encoder.weight"] for file in files)
    np.testing.assert_array_equal(state, trained)
    code, out, _ = run(capsys, "align", str(path), "--rule", "hybrid")
    assert code == 0 and "cell.nu_log" in out
    cells = [line.split("│") for line in out.splitlines() if line.count("│") > 3]
    rows = {name.strip(): values for _, name, *values, _ in cells}
    assert [float(x) for x in rows["reservoir"][:2]] == [0, 0]
    assert float(rows["online"][1]) == pytest.approx(1, abs=1e-3)  # the last layer is exact


def run(capsys, *arguments):
    """Run a command in this process."""
    return cli.main(arguments), *capsys.readouterr()


@pytest.mark.parametrize(
    ("words", "chunk", "said"), [("", 8, "chunks of 8 steps"), ("--chunk None", None, "whole")]
)
def test_align_runs_the_rules_in_chunks_and_says_so(words, chunk, said):
    """Whole sequences show the rules that use the chunk as exact."""
    command = cli._parse(f"align copy {words}".split())
    assert command.chunk == chunk
    one = {"decoder.linear.weight": 1.0}
    found = {"online": Alignment(one, one, np.ones(2), 1.0)}
    caption = str(alignment_tables(found, "online", Config(chunk=command.chunk))[0].caption)
    assert f"in {said}" in caption and "20 validation sequences" in caption


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("strem", "no command 'strem'; did you mean stream?"),
        ("--rows xyz", "no command '--rows'; expected one of train, sweep, rl, stream,"),
        ("train smnits", "no task 'smnits' of train; did you mean smnist?"),
        ("sweep rl copy", "no task 'copy' of rl; expected one of memory-chain,"),
        ("rl --data a.csv", "Unrecognized options: --data"),
        ("train --cell gru --r-min 0.5", "r_min is no option of the cell gru"),
        ("train --cell gru+lstm", "several of them with a plus"),
        ("train --cell lru --state-size None", "state_size=None must be a whole number"),
        ("train copy --cell lru --timescales 1", "--timescales"),
        ("train copy --stps 3", "--steps"),
        ("train copy --task.samples 3 --run-dir new", "samples=3"),
        ("train copy --dropout 1.0 --run-dir new", "dropout"),
        ("train copy --devices 3 --run-dir new", "devices=3: expected a number from 1 to 1"),
        ("train copy --cluster", "name it with --run-dir"),
        ("train copy --cluster --run-dir new", "the processes could not meet"),
        ("resume", "PATH"),
        ("resume absent", "no run at absent"),
        ("train copy --run-dir file/new", "cannot write the run directory file/new"),
        ("report", "report needs"),
        ("align file", "no run at file"),
        ("export . --out step.onnx", "no run at ."),
        ("export . --out step.onnx --format tf", "stablehlo"),
        # Data that are asked for would be the error.
        ("train scifar --steps 3", "warmup_steps=1000 must be below steps=3"),
        ("train scifar --run-dir .", "holds files already"),
    ],
)
def test_bad_input_is_one_clear_message_before_anything_is_read_or_written(
    capsys, tmp_path, monkeypatch, line, message
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORETRACE_DATA", "absent")
    (tmp_path / "file").write_text("mine")
    code, out, err = run(capsys, *line.split())
    assert code == 2 and out == ""
    assert message in " ".join(err.split()) and "Traceback" not in err
    assert err.count("\n") == 1 or "no command" not in message
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_closed_standard_output_is_one_clear_line(capsys, monkeypatch):
    for words in (["--help"], ["--version"], ["stream", "a.csv", "--predictions", "-"]):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", None)  # as Python has it after `>&-`
            assert cli.main(words) == 2
        assert capsys.readouterr().err == (
            "foretrace: error: standard output is closed; send it to a file, or to /dev/null\n"
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "align"),
        ("train copy", "largest global norm of a gradient"),
        ("sweep copy", "LOW:HIGH"),
        ("report", "PATH"),
    ],
)
def test_help_explains_and_nothing_is_run(capsys, words, said):
    code, out, _ = run(capsys, *words.split(), "--help")
    command = words.partition(" ")[0]
    assert code == 0 and f"usage: foretrace {command}".strip() in out
    assert said in " ".join(out.replace("│", " ").split())
    assert ("--network.glu" in out) == (command in ("train", "sweep", "align"))


@pytest.mark.parametrize("command", COMMANDS)
def test_help_names_each_default_once_in_lines_that_break_between_words(
    capsys, monkeypatch, command
):
    pages = []
    for width in ("100", "60"):
        monkeypatch.setenv("COLUMNS", width)
        _, out, _ = run(capsys, command, "--help")
        assert not re.search(r"\(default|Default: None|option of|others:", out)
        pages.append(out.split())
    assert pages[0] == pages[1]  # no word is cut
    assert ("Default: 4000." in out) == (command in ("train", "sweep"))
    if command == "stream":
        assert [title[:-1] for title in re.findall(r"^[a-z].*:$", out, re.M)] == [
            *_help.GROUPS,
            "examples",
        ]


@pytest.mark.program
@pytest.mark.parametrize("line", _help.EXAMPLES["stream"].split("\n")[1:-1])
def test_examples_of_the_help_run(tmp_path, line):
    (tmp_path / "examples").symlink_to(Path(__file__).parents[2] / "examples")
    line = line.replace("foretrace", f"{sys.executable} -m foretrace", 1) + " --rows 300"
    out = printed("bash", "-c", line, cwd=tmp_path)
    assert out.count("\n") >= 20


@pytest.mark.program
def test_a_reader_of_the_help_may_leave():
    command = [sys.executable, "-m", "foretrace", "stream", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def parsed(line):
    return cli._parse(line.split()).config


@pytest.mark.parametrize(
    ("line", "cell"),
    [
        ("train copy --cell s5 --timescales 1 9.5", S5(timescales=(1.0, 9.5))),
        ("train scifar --state-size 7", LRU(7, 0.9, 0.999)),  # the options of the task's cell stay
        ("train scifar --cell lru", LRU(128, 0.9, 0.999)),
        ("train scifar --cell linear-rnn", LinearRNN()),  # and are of no other cell
        ("rl t-maze --cell gru --steps 7", GRU()),
        ("rl t-maze --state-size 7 --tanh True", Beside((RTU(7, True), GRU(7)))),
        ("rl t-maze --cell gru+rtu --tanh True", Beside((GRU(64), RTU(64, True)))),
        ("train copy --state-size 7 --cell gru+gru", Beside((GRU(7), GRU(7)))),
    ],
)
def test_a_cell_is_a_name_with_flat_options(line, cell):
    assert parsed(line).network.cell == cell


def test_options_have_short_names_and_some_may_be_none():
    short = "--lr 0.1 --depth 3 --model-size 16 --dropout 0.2 --cell=min-gru --timescales 1 9"
    long = (
        "--network.cell min-gru --optimizer.learning-rate 0.1 --network.depth 3 "
        "--network.model-size 16 --network.dropout 0.2 --network.timescales 1 9"
    )
    assert parsed(f"train copy {short}") == parsed(f"train copy {long}")
    assert parsed("train --data my.npz --chunk 3").task.data == "my.npz"
    none = parsed("train copy --chunk None --optimizer.clip None")
    assert (none.chunk, none.optimizer.clip) == (None, None)
    default = Config(network=NetworkConfig(cell=MinGRU(3, (1, 9))))
    assert applied(default, {"timescales": None}).network.cell == MinGRU(3)
    assert applied(default, {"state-size": None}).network.cell == MinGRU(None, (1, 9))


def test_a_wrong_option_is_compared_with_those_of_its_command_alone(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, _, err = run(capsys, *"stream x --horison 3".split())
    assert code == 2 and len(err.splitlines()) <= 30
    others = [other for other in COMMANDS if other != "stream" and f"foretrace {other} " in err]
    assert "foretrace stream" in err and not others


@pytest.mark.full
def test_a_rule_that_leaves_parameters_untrained_says_so(capsys, tmp_path):
    words = [*TINY, "--rule", "spatial", "--steps", "1", "--run-dir", str(tmp_path / "run")]
    code, _, err = run(capsys, "train", "copy", *words)
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
