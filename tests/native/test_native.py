"""The step in C equals the learner's, changes nothing when refusing, and names its limits."""

import ctypes
import json
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import fuzz
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS, RULES
from learners import LEARNERS, make_learner
from tiers import fast

import foretrace as ft
from foretrace import cli
from foretrace._graph.step import inference_graph
from foretrace._native import compiler, program
from foretrace._native.compiler import FLAGS
from foretrace._native.context import Context

pytestmark = [
    pytest.mark.usefixtures("standard_promotion"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch, tmp_path_factory):
    """Compile with little optimisation, into a folder of the tests."""
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O1", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path_factory.getbasetemp()))


# The step of every cell is exported to ONNX, too; a rule, an optimiser and an answer of each kind.
# Without the last two rules: RTRL in depth is exported to ONNX, and credit for some groups goes the
# way of credit for all.
KINDS = [*"gru selective lif rotation adamw classes".split(), *(str(c.rule) for c in RULES[:-2])]
TIERS = dict.fromkeys(LEARNERS, pytest.mark.slow) | dict.fromkeys(KINDS, pytest.mark.full)
TIERS |= {"lru": (), "modules, classes": pytest.mark.program}


@pytest.mark.parametrize("name", [pytest.param(name, marks=TIERS[name]) for name in LEARNERS])
@pytest.mark.exact
def test_the_step_in_c_is_that_of_the_learner(name, benchmark):
    """Many rows, of which some are refused, only predicted, or begin a sequence."""
    # 22 steps of modules: under the second-order step rounding grows a hundredfold in ten rows,
    # between two runs of JAX as well.
    rows, compare = 72 if "modules" in name else 120, benchmark("engine.native_parity").compare
    found = compare(LEARNERS[name](), rows, "classes" in name)
    assert found["refused"] == found["refused in C"] > 2
    assert found["results"] < 1e-9 and found["state"] < 1e-9, found


@pytest.mark.parametrize("cell", fast(["lru", "selective", "lstm"]))
@pytest.mark.exact
def test_a_network_in_c_is_its_forward_pass(cell):
    """Parameters are constants in it, of which each layer reads its part."""
    network = make_learner(cell).network
    graph = inference_graph(network)
    found = program.inference_program("model", graph)
    library = compiler.compiled(found.source, found.header, "model")
    xs, outputs = np.random.default_rng(0).normal(size=(9, 3)), np.zeros((9, 2))
    context = Context(found, graph.state)
    for before_a_reset in (True, False):
        for x, y in zip(xs, outputs, strict=True):
            arrays = (ctypes.c_void_p(array.ctypes.data) for array in (x, y))
            library.model_predict(context.pointer, *arrays)
        want = ft.forward(network, None, jnp.asarray(xs))[0]
        np.testing.assert_allclose(outputs, want, atol=1e-9, err_msg=str(before_a_reset))
        library.model_reset(context.pointer)


@pytest.fixture(scope="module")
def native():
    return ft.native(make_learner("mingru"))


@pytest.mark.exact
def test_jax_continues_from_a_native_state_and_back(monkeypatch):
    """An equal learner is compiled once."""
    learner = make_learner("mingru")
    native, x, y = ft.native(learner), np.array([0.5, -1, 2]), np.array([0.1, -0.2])
    for _ in range(5):
        native.step(x, y)
    state, info = learner.step(native.state(), jnp.asarray(x[None]), jnp.asarray(y[None]))
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    again = ft.native(make_learner.__wrapped__("mingru"), native.state())
    np.testing.assert_allclose(again.step(x, y).outputs, info.outputs[0], rtol=1e-9, atol=1e-9)
    assert int(native.state().step) == 5 and int(state.step) == int(again.state().step) == 6


def of_whole_numbers():
    learner = make_learner("mingru", loss=lambda output, y: jnp.mean((output - y) ** 2))
    return ft.native(learner, target=np.int32(0))


@pytest.mark.parametrize(
    ("make", "x", "y", "text"),
    [
        (None, np.ones((1, 3)), np.zeros(2), r"x has the shape \(1, 3\), expected \(3,\)"),
        (None, np.ones(3) * 1j, np.zeros(2), "x is of type complex128, expected float32"),
        (of_whole_numbers, np.ones(3), 2**32, "y holds 4294967296, which is no int32"),
    ],
)
def test_rows_that_do_not_fit_are_refused(native, make, x, y, text):
    native = make() if make else native
    before = int(native.state().step)
    with pytest.raises(ValueError, match=text):
        native.step(x, y)
    assert int(native.state().step) == before


@pytest.mark.parametrize("label", [2**32 + 1, -1, 4, np.uint64(2**63), 1.5, np.float32(2.0), True])
def test_a_label_that_is_no_class_is_refused_as_the_learner_does(
    label, of_classes, without_shape_checks
):
    learner, native, state = of_classes
    x, before = np.ones(3, np.float32), int(native.state().step)
    with pytest.raises((TypeError, ValueError)) as ours:
        native.step(x, label)
    with pytest.raises((TypeError, ValueError)) as theirs:
        learner.step(state, x[None], np.asarray(label)[None])
    assert str(ours.value) == str(theirs.value) and type(ours.value) is type(theirs.value)
    assert int(native.state().step) == before
    assert all(native.step(x, one).accepted for one in (0, np.int64(3), np.uint8(1), np.int32(2)))


@pytest.fixture(scope="module")
def of_classes():
    learner = make_learner("mingru", loss=ft.losses.softmax_cross_entropy, outputs=4)
    return learner, ft.native(learner), learner.init()


# The compiler.


def test_without_a_compiler_the_error_names_both_ways(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ft.CompilerError, match=r"gcc.*foretrace\[native\]"):
        ft.native(make_learner(rule=ft.RESERVOIR, optimizer=optax.sgd(0.1)))


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def another(path):
    """Put the program of another source in the place of one."""
    path.write_bytes(next(one for one in path.parent.glob("*.so") if one != path).read_bytes())


DAMAGE = {
    "another program": another,
    "half": lambda path: cut(path, path.stat().st_size // 2),
    "garbage": lambda path: path.write_bytes(b"\0garbage" * 500),
    "of the group": lambda path: path.chmod(0o620),
    "of another owner": lambda path: os.getuid() or os.chown(path, 12345, -1),
    "a link": lambda path: path.rename(path.with_name("moved")) and path.symlink_to("moved"),
    "missing": lambda path: path.unlink(),
}


def test_a_damaged_or_foreign_program_is_compiled_again(monkeypatch, tmp_path):
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    answers = [f"int answer(void) {{ return {place}; }}" for place in range(len(DAMAGE))]
    with monkeypatch.context() as patch:  # no file is damaged while this process has it loaded
        patch.setattr(compiler.ctypes, "CDLL", Path)
        paths = [compiler.compiled(source, "", "answer") for source in answers]
    for path, damage in zip(paths, DAMAGE.values(), strict=True):
        damage(path)
    for place, source in enumerate(answers):
        assert compiler.compiled(source, "", "answer").answer() == place
        found = paths[place].lstat()
        assert stat.S_ISREG(found.st_mode) and not found.st_mode & 0o022
        assert found.st_uid == os.getuid() and found.st_size > 4096
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    assert compiler.compiled(answers[1], "", "answer").answer() == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: (folder.mkdir(), folder.chmod(0o770)),
        lambda folder: folder.write_text("a file"),
    ],
)
def test_from_a_folder_of_others_nothing_is_loaded(make, monkeypatch, tmp_path):
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    make(tmp_path / "native")
    source = "int answer(void) { return 7; }"
    with pytest.warns(UserWarning, match="native.*until this process ends.*FORETRACE_CACHE"):
        assert compiler.compiled(source, "", "answer").answer() == 7
    assert not list(tmp_path.glob("native/*"))


@pytest.mark.parametrize("given", ["/no/such/cc", '"gcc', __file__])
def test_a_command_that_is_no_compiler_is_named_before_a_file_is_written(
    given, monkeypatch, tmp_path, capsys
):
    monkeypatch.setenv("CC", given)
    with pytest.raises(ft.CompilerError, match=re.escape(f"CC={given!r}") + ".*such as CC=gcc"):
        compiler.compiled("", "", "answer")
    run, out = tmp_path / "run", tmp_path / "model.c"
    assert cli.main(["export", str(run), "--format", "c", "--out", str(out)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"foretrace: error: the variable CC={given!r}")
    assert not list(tmp_path.iterdir())


# The C files.


def run(*command):
    call = list(map(str, command))
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_files_name_what_they_hold(tmp_path):
    files = ft.export(make_learner("mingru"), tmp_path / "model.c", "c", learn=True)
    header = json.loads(files.header.read_text())
    assert (header["format"], header["step"]) == ("c", "learning")
    text = files.include.read_text()
    assert "#define MODEL_INPUTS 3" in text and "#define MODEL_OUTPUTS 2" in text
    source = files.graph.read_text()
    assert set(line for line in source.splitlines() if line.startswith("#include")) == {
        '#include "model.h"',
        "#include <math.h>",
        "#include <string.h>",
    }
    assert "malloc" not in source
    run("cc", "-std=c99", *fuzz.WARNINGS, "-c", files.graph, "-o", tmp_path / "model.o")


FEW = "int exp size_t memcpy main unix initial0 math model_result nullptr"


def test_a_file_of_any_name_compiles(tmp_path):
    network = make_learner("mingru").network
    for name in FEW.split():
        ft.export(network, tmp_path / f"{name}.c", "c")
    run("cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *tmp_path.glob("*.c"))


FINITE = dict.fromkeys((*CELLS, "modules, a number", "several steps"), pytest.mark.slow)
FINITE |= dict.fromkeys(("lru", "classes", "modules, classes"), pytest.mark.program)


@pytest.mark.parametrize("name", [pytest.param(name, marks=FINITE[name]) for name in FINITE])
def test_rows_of_any_bytes_leave_the_state_finite_and_refused_ones_leave_it_alone(name, tmp_path):
    fuzz.write(LEARNERS[name](), np.int32(0) if "classes" in name else None, tmp_path)
    accepted = int(run(fuzz.build(tmp_path, "-O1", *fuzz.SANITIZERS), 1000, 1, 0).split()[1])
    assert 100 < accepted < 1000


@pytest.mark.program
def test_two_builds_agree_bit_for_bit(tmp_path):
    fuzz.write(make_learner(), None, tmp_path)
    first, second = (fuzz.build(tmp_path, *FLAGS, name=name) for name in ("first", "second"))
    found = run(first, 10_000, 1, 0)
    assert [run(build, 10_000, 1, at) for build, at in ((first, 8), (second, 24))] == [found] * 2
    assert run(first, 10_000, 2, 0) != found
