"""The step in C equals the learner's, changes nothing when refusing, and names its limits."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
from functools import partial

import fuzz
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from cases import CELLS, RULES
from tiers import fast

import foretrace as ft
from foretrace import cli
from foretrace._graph.step import learning_graph
from foretrace._native import compiler, program
from foretrace._native.compiler import FLAGS
from foretrace._native.function import function
from foretrace._native.operators import helpers

pytestmark = [
    pytest.mark.usefixtures("default_promotion"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]
ROWS = 60


@pytest.fixture(autouse=True)
def quick_builds(monkeypatch, tmp_path_factory):
    """Compile with little optimisation, into a folder of the tests."""
    monkeypatch.setattr(compiler, "FLAGS", ("-std=c99", "-O1", "-ffp-contract=off"))
    monkeypatch.setenv("FORETRACE_CACHE", str(tmp_path_factory.getbasetemp()))


def make_learner(cell="lru", rule=ft.ONLINE, loss=ft.losses.squared_error, outputs=2, **options):
    network = ft.Network(3, outputs, model_size=4, depth=2, cell=CELLS[cell], key=jax.random.key(0))
    options = {"optimizer": optax.adam(1e-2), "warn": False} | options
    return ft.Learner(network, rule=rule, loss=loss, **options)


def modules(outputs=3, classes=True, **options):
    cells = (ft.SetReset.factory(state_size=8), ft.Rotation.factory(state_size=4))
    network = ft.ModuleNetwork(3, outputs, cells=cells, key=jax.random.key(0))
    loss = ft.losses.softmax_cross_entropy if classes else ft.losses.squared_error
    options = {"optimizer": ft.kalman(), "head": ft.heads.least_squares()} | options
    return ft.Learner(network, rule=ft.ONLINE, loss=loss, **options)


def of_rule(rule):
    return make_learner("gru" if "RTRL" in str(rule) else "lru", rule)


def rows(learner):
    draw = np.random.default_rng(0)
    for _ in range(ROWS):
        yield (
            draw.normal(size=learner.network.input_size),
            draw.normal(size=learner.network.output_size),
        )


def assert_close(ours, theirs, tolerance=1e-9):
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=tolerance, atol=tolerance)


@pytest.fixture
def assert_follows(benchmark):
    """Return a function that compares results and state with `Learner.step` on many rows."""
    parity = benchmark("engine.native_parity")

    def check(learner, classes=False, rows=120):
        found = parity.compare(learner, rows, classes)
        assert found["refused"] == found["refused in C"] > 2
        assert found["results"] < 1e-9 and found["state"] < 1e-9, found

    return check


@pytest.mark.parametrize("cell", fast(list(CELLS)))
@pytest.mark.exact
def test_every_cell_in_c_is_the_cell(cell, assert_follows):
    assert_follows(make_learner(cell))


@pytest.mark.parametrize("rule", fast([case.rule for case in RULES], 0), ids=str)
@pytest.mark.exact
def test_every_rule_in_c_is_the_rule(rule, assert_follows):
    assert_follows(of_rule(rule))


def test_the_table_of_differences_has_every_cell_and_every_rule(benchmark):
    parity = benchmark("engine.native_parity")
    ours, theirs = (
        {type(make(4, key=jax.random.key(0))) for make in d.values()} for d in (CELLS, parity.CELLS)
    )
    assert ours == theirs
    assert {str(case.rule) for case in RULES} <= {rule for _, rule in parity.MODELS}


OPTIMIZERS = {
    "momentum": optax.sgd(1e-3, momentum=0.9),
    "adamw": ft.adamw(1e-2),
    "clipped": optax.chain(optax.clip_by_global_norm(0.5), optax.adam(1e-2)),
    "schedule": optax.adam(optax.cosine_decay_schedule(1e-2, 40)),
    "rmsprop": optax.rmsprop(1e-3),
    "lion": optax.lion(1e-3),
    "adafactor": optax.adafactor(1e-3),
    "lamb": optax.lamb(1e-3),
    "several steps": optax.MultiSteps(optax.adam(1e-2), 3).gradient_transformation(),
    "plateau": optax.chain(
        optax.adam(1e-2), optax.contrib.reduce_on_plateau(patience=2, accumulation_size=2)
    ),
    "optimistic": optax.optimistic_adam_v2(1e-3),
}


@pytest.mark.parametrize("name", fast(list(OPTIMIZERS), 0))
@pytest.mark.exact
def test_every_optimiser_in_c_is_the_optimiser(name, assert_follows):
    assert_follows(make_learner(optimizer=OPTIMIZERS[name]))


@pytest.mark.parametrize(
    ("outputs", "classes", "head"),
    [
        pytest.param(1, False, True, marks=pytest.mark.program),
        pytest.param(2, False, True, marks=pytest.mark.full),
        pytest.param(3, True, True, marks=pytest.mark.program),
        pytest.param(3, True, False, marks=pytest.mark.full),
    ],
)
@pytest.mark.exact
def test_the_second_order_step_and_least_squares_in_c(outputs, classes, head, assert_follows):
    # 22 steps: under this one rounding grows a hundredfold in ten rows, between two runs of JAX as
    # well.
    assert_follows(
        modules(outputs, classes, head=ft.heads.least_squares() if head else None), classes, rows=72
    )


@pytest.mark.full
@pytest.mark.exact
def test_a_class_as_target(assert_follows):
    assert_follows(make_learner(loss=ft.losses.softmax_cross_entropy, outputs=4), classes=True)


@pytest.fixture
def learner():
    return make_learner("mingru")


@pytest.mark.exact
def test_jax_continues_from_a_native_state_and_back(learner):
    native, (x, y) = ft.native(learner), next(rows(learner))
    for _ in range(5):
        native.step(x, y)
    again = ft.native(learner, native.state())
    state, info = learner.step(native.state(), jnp.asarray(x[None]), jnp.asarray(y[None]))
    assert_close(again.step(x, y).outputs, info.outputs[0])
    assert int(native.state().step) == 5 and int(state.step) == int(again.state().step) == 6


@pytest.mark.exact
def test_reset_begins_a_sequence_and_keeps_what_was_learned(learner):
    native, state = ft.native(learner), learner.init()
    for x, y in list(rows(learner))[:5]:
        state, _ = learner.step(state, jnp.asarray(x[None]), jnp.asarray(y[None]))
        native.step(x, y)
    native.reset()
    state = state._replace(carry=learner.init_carry(state.network, None))
    assert_close(native.state()._replace(key=None), state._replace(key=None))
    state, info = learner.step(state, jnp.asarray(x[None]), jnp.asarray(y[None]))
    assert_close(native.step(x, y).outputs, info.outputs[0])


def test_a_refused_step_changes_nothing_but_its_count(learner):
    native, (x, y) = ft.native(learner), next(rows(learner))
    native.step(x, y)
    before = native.state()
    for bad_x, bad_y in ((x * np.nan, y), (x, y * np.inf), (x * 1e38, y)):
        assert not native.step(bad_x, bad_y).accepted
    after = native.state()
    assert int(after.skipped) == 3
    for a, b in zip(jax.tree.leaves(before.network), jax.tree.leaves(after.network), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(jax.tree.leaves(before.carry), jax.tree.leaves(after.carry), strict=True):
        np.testing.assert_array_equal(a, b)


def test_each_thread_has_a_model_of_its_own(learner):
    data = list(rows(learner))
    models = [ft.native(learner) for _ in range(4)]

    def work(model):
        for x, y in data:
            model.step(x, y)

    threads = [threading.Thread(target=work, args=(model,)) for model in models[1:]]
    for thread in threads:
        thread.start()
    work(models[0])
    for thread in threads:
        thread.join()
    first, *others = (jax.tree.leaves(model.state()._replace(key=None)) for model in models)
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_an_equal_learner_is_compiled_once(learner, monkeypatch):
    ft.native(learner)
    monkeypatch.setattr(compiler, "_compile", lambda *_: pytest.fail("compiled again"))
    state, _ = learner.step(learner.init(), jnp.ones((1, 3)), jnp.zeros((1, 2)))
    ft.native(learner, state)


@pytest.mark.parametrize(
    ("x", "y", "text"),
    [
        (np.ones((1, 3)), np.zeros(2), r"x has the shape \(1, 3\), expected \(3,\)"),
        (np.ones(3), np.zeros(1), r"y has the shape \(1,\), expected \(2,\)"),
        (np.ones(3) * 1j, np.zeros(2), "x is of type complex128, expected float32"),
    ],
)
def test_rows_of_another_shape_are_refused(learner, x, y, text):
    native = ft.native(learner)
    with pytest.raises(ValueError, match=text):
        native.step(x, y)
    assert int(native.state().step) == 0


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


@pytest.mark.parametrize("y", [2**32, -(2**31) - 1, 2**63])
def test_whole_numbers_that_do_not_fit_are_refused(y):
    def loss(output, y):
        return jnp.mean((output - y) ** 2)

    native = ft.native(make_learner("mingru", loss=loss), target=np.int32(0))
    with pytest.raises(ValueError, match=f"y holds {y}, which is no int32"):
        native.step(np.ones(3, np.float32), y)


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
    "a byte": lambda path: cut(path, 1),
    "its ELF header": lambda path: cut(path, 64),
    "a page": lambda path: cut(path, 4096),
    "half": lambda path: cut(path, path.stat().st_size // 2),
    "all but a byte": lambda path: cut(path, -1),
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


def test_an_operation_without_a_form_is_named():
    def loss(output, y):
        return jnp.sum(jnp.sort(output) * y)

    with pytest.raises(ValueError, match="sort"):
        ft.native(make_learner(loss=loss))


# The C files.


def build(folder, *flags):
    call = ["cc", "-std=c99", "-Wall", "-Wextra", "-Wconversion", "-Wpedantic", "-Werror", *flags]
    subprocess.run(call, cwd=folder, check=True)


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
    build(tmp_path, "-c", "model.c")


@pytest.mark.parametrize("path", ["model.txt", "2nd.c", "my-model.c"])
def test_a_name_that_is_none_in_c_is_refused(learner, tmp_path, path):
    with pytest.raises(ValueError, match=r"such as model\.c"):
        ft.export(learner, tmp_path / path, "c", learn=True)
    assert not list(tmp_path.iterdir())


KEYWORDS = """auto break case char const continue default do double else enum extern float for goto
if inline int long register restrict return short signed sizeof static struct switch typedef union
unsigned void volatile while"""
FEW = """int double static exp expf size_t memcpy fenv_t printf isnan main unix run run_step
initial0 step_numbers0 reset_numbers12 math string stdint model_result nullptr"""


def names_in_headers():
    """Return every name in the headers of C99, as this machine's compiler sees them, and macros."""
    headers = """assert complex ctype errno fenv float inttypes iso646 limits locale math setjmp
    signal stdarg stdbool stddef stdint stdio stdlib string tgmath time wchar wctype"""
    found = set()
    # What a program includes in any mode; the other headers as in C99.
    for given, mode in (("math string stdint", "gnu11"), (headers, "c99")):
        text = "".join(f"#include <{header}.h>\n" for header in given.split())
        for form in ("-P", "-dM"):
            call = ["cc", f"-std={mode}", "-E", form, "-"]
            done = subprocess.run(call, input=text, capture_output=True, text=True, check=True)
            pattern = r"\b[a-z]\w*" if form == "-P" else r"(?m)^#define ([a-z]\w*)"
            found |= set(re.findall(pattern, done.stdout))
    return found


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.full)])
def test_a_file_of_any_name_compiles(every, monkeypatch, tmp_path):
    network = ft.Network(2, 1, model_size=2, depth=1, cell=CELLS["mingru"], key=jax.random.key(0))
    learner = ft.Learner(
        network, rule=ft.ONLINE, optimizer=optax.sgd(1e-2), loss=ft.losses.squared_error, warn=False
    )
    graph, made = learning_graph(learner, None, None), {}
    # The statements of a function do not depend on the name, and are written once.
    monkeypatch.setattr(
        program,
        "function",
        lambda part, *given: made.get(part) or made.setdefault(part, function(part, *given)),
    )
    names = {*FEW.split(), *(name for kind in "fd" for name, _ in helpers(kind))}
    if every:
        source = program.learning_program(learner, "model", None, graph).source
        names |= {*re.findall(r"\b[a-z]\w*", source), *KEYWORDS.split(), *names_in_headers()}
    for name in names:
        found = program.learning_program(learner, name, None, graph)
        (tmp_path / f"{name}.c").write_text(found.source)
        (tmp_path / f"{name}.h").write_text(found.header)
    run("cc", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", *tmp_path.glob("*.c"))


def test_a_network_alone_predicts(learner, tmp_path):
    network = learner.network
    ft.export(network, tmp_path / "net.c", "c")
    (tmp_path / "main.c").write_text(
        """#include "net.h"
#include <stdio.h>
int main(void)
{
    static net model;
    float x[3] = {1.0f, -0.5f, 0.25f}, y[2];
    net_init(&model);
    net_predict(&model, x, y);
    net_reset(&model);
    for (int t = 0; t < 3; ++t) net_predict(&model, x, y);
    printf("%.17g %.17g\\n", y[0], y[1]);
    return 0;
}
"""
    )
    build(tmp_path, "-o", "main", "main.c", "net.c", "-lm")
    printed = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=True).stdout
    outputs, _ = ft.forward(network, None, jnp.tile(jnp.array([1.0, -0.5, 0.25]), (3, 1)))
    np.testing.assert_allclose(np.array(printed.split(), float), outputs[-1], rtol=1e-6)


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


MODELS = [
    pytest.param(modules, id="modules", marks=pytest.mark.program),
    *(
        pytest.param(
            partial(make_learner, cell),
            id=cell,
            marks=pytest.mark.program if cell == "lru" else pytest.mark.full,
        )
        for cell in CELLS
    ),
    *(
        pytest.param(partial(of_rule, case.rule), id=str(case.rule), marks=pytest.mark.full)
        for case in RULES
    ),
]


@pytest.mark.parametrize("make", MODELS)
def test_rows_of_any_bytes_leave_the_state_finite_and_refused_ones_leave_it_alone(make, tmp_path):
    learner = make()
    fuzz.write(learner, None, tmp_path)
    program = fuzz.build(tmp_path, "-O1", *fuzz.SANITIZERS)
    accepted = int(run(program, 1000, 1, 0).split()[1])
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
