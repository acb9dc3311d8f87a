"""The step in C equals the learner's, changes nothing when refusing, and names its limits."""

import ctypes
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading

import fuzz
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS, RULES
from learners import LEARNERS, make_learner
from tiers import fast

import foretrace as ft
from foretrace import cli
from foretrace._graph.step import inference_graph, learning_graph
from foretrace._native import compiler, program
from foretrace._native.compiler import FLAGS
from foretrace._native.context import Context
from foretrace._native.function import function
from foretrace._native.operators import helpers

pytestmark = [
    pytest.mark.usefixtures("default_promotion"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch, tmp_path_factory):
    """Compile with little optimisation, into a folder of the tests."""
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O1", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path_factory.getbasetemp()))


TIERS = dict.fromkeys(LEARNERS, pytest.mark.full) | {"lru": ()}
TIERS |= dict.fromkeys(("modules, a number", "modules, classes"), pytest.mark.program)


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


@pytest.mark.parametrize("cell", fast(["selective", "lru", "lstm", "s5"]))
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


def test_the_table_of_differences_has_every_cell_and_every_rule(benchmark):
    parity = benchmark("engine.native_parity")
    ours, theirs = (
        {type(make(4, key=jax.random.key(0))) for make in d.values()} for d in (CELLS, parity.CELLS)
    )
    assert ours == theirs
    assert {str(case.rule) for case in RULES} <= {rule for _, rule in parity.MODELS}


@pytest.fixture
def learner():
    return make_learner("mingru")


@pytest.fixture(scope="module")
def native():
    return ft.native(make_learner("mingru"))


@pytest.mark.exact
def test_jax_continues_from_a_native_state_and_back(learner):
    native, x, y = ft.native(learner), np.array([0.5, -1, 2]), np.array([0.1, -0.2])
    for _ in range(5):
        native.step(x, y)
    again = ft.native(learner, native.state())
    state, info = learner.step(native.state(), jnp.asarray(x[None]), jnp.asarray(y[None]))
    np.testing.assert_allclose(again.step(x, y).outputs, info.outputs[0], rtol=1e-9, atol=1e-9)
    assert int(native.state().step) == 5 and int(state.step) == int(again.state().step) == 6


def test_a_refused_step_changes_nothing_but_its_count(native):
    x, y = np.array([0.5, -1, 2]), np.array([0.1, -0.2])
    native.step(x, y)
    before = native.state()
    for bad_x, bad_y in ((x * np.nan, y), (x, y * np.inf), (x * 1e38, y)):
        assert not native.step(bad_x, bad_y).accepted
    after = native.state()
    assert int(after.skipped) == int(before.skipped) + 3
    assert_same(after._replace(skipped=before.skipped), before)


def assert_same(ours, theirs):
    for a, b in zip(*(jax.tree.leaves(s._replace(key=None)) for s in (ours, theirs)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_thread_has_a_model_of_its_own(learner):
    data, models = np.random.default_rng(0).normal(size=(60, 5)), []

    def work():
        model = ft.native(learner)
        for row in data:
            model.step(row[:3], row[3:])
        models.append(model)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for change in (threading.Thread.start, threading.Thread.join):
        for thread in threads:
            change(thread)
    for model in models[1:]:
        assert_same(model.state(), models[0].state())


def test_an_equal_learner_is_compiled_once(learner, monkeypatch):
    ft.native(learner)
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    state, _ = learner.step(learner.init(), jnp.ones((1, 3)), jnp.zeros((1, 2)))
    ft.native(learner, state)


def of_whole_numbers():
    learner = make_learner("mingru", loss=lambda output, y: jnp.mean((output - y) ** 2))
    return ft.native(learner, target=np.int32(0))


@pytest.mark.parametrize(
    ("make", "x", "y", "text"),
    [
        (None, np.ones((1, 3)), np.zeros(2), r"x has the shape \(1, 3\), expected \(3,\)"),
        (None, np.ones(3), np.zeros(1), r"y has the shape \(1,\), expected \(2,\)"),
        (None, np.ones(3) * 1j, np.zeros(2), "x is of type complex128, expected float32"),
        *(
            (of_whole_numbers, np.ones(3), y, f"y holds {y}, which is no int32")
            for y in (2**32, -(2**31) - 1, 2**63)
        ),
    ],
)
def test_rows_that_do_not_fit_are_refused(native, make, x, y, text):
    native = make() if make else native
    before = int(native.state().step)
    with pytest.raises(ValueError, match=text):
        native.step(x, y)
    assert int(native.state().step) == before


@pytest.mark.parametrize(
    "label",
    [2**32, 2**32 + 1, 2**31, -(2**31) - 1, -1, 4, np.uint64(2**63), np.uint32(2**32 - 1), 1.5, 1.0]
    + [np.float32(2.0), True],
)
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


def test_without_a_compiler_the_error_names_both_ways(learner, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(compiler.shutil, "which", lambda _: None)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ft.CompilerError, match=r"gcc.*foretrace\[native\]"):
        ft.native(learner)


ANSWERS = """
import sys
from foretrace._native import compiler
compiler.FLAGS = tuple(sys.argv[2:])
for place in range(int(sys.argv[1])):
    source = f"int answer(void) {{ return {place}; }}"
    print(compiler.compiled(source, "", "answer").answer(), flush=True)
"""


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


DAMAGE = {
    "empty": lambda path: cut(path, 0),
    "half": lambda path: cut(path, path.stat().st_size // 2),
    "garbage": lambda path: path.write_bytes(b"\0garbage" * 500),
    "another program": lambda path: shutil.copy(next(path.parent.glob("*.so")), path),
    "of the group": lambda path: path.chmod(0o620),
    "of all": lambda path: path.chmod(0o606),
    "of another owner": lambda path: os.getuid() or os.chown(path, 12345, -1),
    "a link": lambda path: path.rename(path.with_name("moved")) and path.symlink_to("moved"),
    "missing": lambda path: path.unlink(),
}


@pytest.fixture
def answers(monkeypatch, tmp_path):
    """Return a function that compiles programs in a process of its own."""
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))

    def call(number):
        command = [sys.executable, "-c", ANSWERS, str(number), *compiler.FLAGS]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
        assert done.stdout.split() == [str(place) for place in range(number)]
        return done.stderr

    return call


def test_a_damaged_or_foreign_program_is_compiled_again(answers, tmp_path):
    folder = tmp_path / "native"
    answers(len(DAMAGE))
    first = sorted(folder.iterdir())
    for path, damage in zip(first, DAMAGE.values(), strict=True):
        damage(path)
    assert answers(len(DAMAGE)) == ""
    for path in first:
        found = path.lstat()
        assert stat.S_ISREG(found.st_mode) and not found.st_mode & 0o022
        assert found.st_uid == os.getuid() and found.st_size > 4096
    kept = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    answers(len(DAMAGE))
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == kept


@pytest.mark.parametrize(
    "make",
    [
        lambda folder: (folder.mkdir(), folder.chmod(0o777)),
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


def test_what_is_compiled_is_said_once(monkeypatch, tmp_path, caplog):
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path))
    with caplog.at_level("INFO", "foretrace"):
        for _ in range(2):
            compiler.compiled("int answer(void) {\n  return 7;\n}\n", "", "answer")
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("compiling 3 lines of C with ") and second.startswith("compiled in ")


@pytest.mark.parametrize("given", ["/no/such/cc", " ", '"gcc', "/", __file__])
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


def run(*command, text=None):
    call = list(map(str, command))
    done = subprocess.run(call, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_files_name_what_they_hold(learner, tmp_path):
    files = ft.export(learner, tmp_path / "model.c", "c", learn=True)
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


KEYWORDS = """auto break case char const continue default do double else enum extern float for goto
if inline int long register restrict return short signed sizeof static struct switch typedef union
unsigned void volatile while"""
FEW = """int double static exp expf size_t memcpy fenv_t printf isnan main unix run run_step
initial0 step_numbers0 reset_numbers12 math string stdint model_result nullptr"""


HEADERS = """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp signal
stdarg stdbool stddef stdint stdio stdlib string tgmath time wchar wctype"""
FORMS = {"-P": r"\b[a-z]\w*", "-dM": r"(?m)^#define ([a-z]\w*)"}


def names_in_headers():
    """Return every name in the headers of C99, as this machine's compiler sees them, and macros."""
    found = set()
    # What a program includes in any mode; the other headers as in C99.
    for headers, mode in (("math string stdint", "gnu11"), (HEADERS, "c99")):
        text = "".join(f"#include <{header}.h>\n" for header in headers.split())
        for form, pattern in FORMS.items():
            found |= set(re.findall(pattern, run("cc", f"-std={mode}", "-E", form, "-", text=text)))
    return found


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_file_of_any_name_compiles(every, monkeypatch, tmp_path):
    network = ft.Network(2, 1, model_size=2, depth=1, cell=CELLS["mingru"], key=jax.random.key(0))
    options = {"rule": ft.ONLINE, "optimizer": optax.sgd(1e-2), "warn": False}
    learner = ft.Learner(network, loss=ft.losses.squared_error, **options)
    graph, made = learning_graph(learner, None, None), {}

    def once(part, *given):
        """The statements of a function do not depend on the name, and are written once."""
        return made.get(part) or made.setdefault(part, function(part, *given))

    monkeypatch.setattr(program, "function", once)
    names = {*FEW.split(), *(name for kind in "fd" for name, _ in helpers(kind))}
    if every:
        source = program.learning_program(learner, "model", None, graph).source
        names |= {*re.findall(r"\b[a-z]\w*", source), *KEYWORDS.split(), *names_in_headers()}
    for name in names:
        found = program.learning_program(learner, name, None, graph)
        (tmp_path / f"{name}.c").write_text(found.source)
        (tmp_path / f"{name}.h").write_text(found.header)
    run("cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *tmp_path.glob("*.c"))


# Each cell, and parts of a state that others do not have. Rules refuse as the cells do.
FINITE = [
    "lru",
    "modules, classes",
    *CELLS,
    "classes",
    "modules, a number",
    "lamb",
    "several steps",
]
FINITE = [
    pytest.param(name, marks=pytest.mark.program if place < 2 else pytest.mark.full)
    for place, name in enumerate(dict.fromkeys(FINITE))
]


@pytest.mark.parametrize("name", FINITE)
def test_rows_of_any_bytes_leave_the_state_finite_and_refused_ones_leave_it_alone(name, tmp_path):
    fuzz.write(LEARNERS[name](), np.int32(0) if "classes" in name else None, tmp_path)
    accepted = int(run(fuzz.build(tmp_path, "-O1", *fuzz.SANITIZERS), 1000, 1, 0).split()[1])
    assert 100 < accepted < 1000


@pytest.mark.program
def test_two_builds_agree_bit_for_bit(tmp_path):
    fuzz.write(make_learner(), None, tmp_path)
    first, second = (fuzz.build(tmp_path, *FLAGS, name=name) for name in ("first", "second"))
    found = run(first, 10_000, 1, 0)
    assert [
        run(build, 10_000, 1, offset) for build, offset in ((first, 8), (second, 0), (second, 24))
    ] == [found] * 3
    assert run(first, 10_000, 2, 0) != found
