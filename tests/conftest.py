"""Settings of the tests: JAX as it comes, float64 and strict promotion for laws; and the tiers."""

import contextlib
import ctypes
import gc
import importlib
import io
import os
import sys
from pathlib import Path

from quick import FLAGS

# Set XLA_FLAGS yourself (empty, for the compiler's default) to test with other ones.
os.environ.setdefault("XLA_FLAGS", FLAGS)

# Compiled programs are kept on disk between runs, and shared with the processes that tests start.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Programs do not say which lines of Python made them: a twentieth of the time of a test.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")

import hypothesis
import jax
import jaxtyping
import pytest

# Tracing makes millions of objects that stay; looking for garbage among them is another twentieth.
gc.set_threshold(200_000, 50, 100)

# Rooms that assert laws: float64, and no promotion that a test does not see. What a user calls is
# tested with JAX as it comes, except for tests marked `exact`.
EXACT = {"cells", "credit", "engine", "experts", "laws", "learner", "network", "recurrence", "rule"}
MODES = {
    True: {"enable_x64": True, "numpy_dtype_promotion": "strict", "numpy_rank_promotion": "raise"},
    False: {
        "enable_x64": False,
        "numpy_dtype_promotion": "standard",
        "numpy_rank_promotion": "allow",
    },
}


def _set_mode(exact):
    for name, value in MODES[exact].items():
        jax.config.update(f"jax_{name}", value)


def _is_exact(node):
    return node.path.parent.name in EXACT or node.get_closest_marker("exact") is not None


# The modules that compute; the programs around them have protocols and `Self`, which beartype does
# not follow.
CHECKED = "losses heads _cells _network _modules _recurrence _credit _engine _learner.learner"
jaxtyping.install_import_hook(
    [f"foretrace.{name}" for name in CHECKED.split()], "beartype.beartype"
)

from cases import CELLS  # noqa: E402 - after the hook
from tiers import TIERS, fast  # noqa: E402

EXAMPLES = {"fast": 3, "full": 10}
for profile, count in EXAMPLES.items():
    hypothesis.settings.register_profile(
        profile, deadline=None, max_examples=count, derandomize=True, database=None
    )


def pytest_addoption(parser):
    parser.addoption(
        "--full",
        action="store_true",
        help="run every tier, property-based tests with 10 examples each",
    )


def pytest_configure(config):
    hypothesis.settings.load_profile("full" if config.option.full else "fast")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Import a file of tests in the mode of its tests."""
    _set_mode(_is_exact(collector))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Set up, run and tear down a test in its mode."""
    _set_mode(_is_exact(item))
    return (yield)


def pytest_collection_modifyitems(config, items):
    """Leave out the slower tiers, unless `--full`, `-m` or a test's name asks for them."""
    if (
        config.option.full
        or config.option.markexpr
        or any("::" in argument for argument in config.args)
    ):
        return
    slower = [item for item in items if any(item.get_closest_marker(tier) for tier in TIERS)]
    config.hook.pytest_deselected(items=slower)
    items[:] = [item for item in items if item not in set(slower)]


@pytest.fixture(scope="module", params=fast(["lru", "gru", "tanh", "lstm"]))
def cell_name(request):
    return request.param


@pytest.fixture(scope="module")
def make_cell(cell_name):
    """Return `make(size, *, key)` of each architecture in turn."""
    return CELLS[cell_name]


@pytest.fixture(scope="module")
def standard_promotion():
    """JAX's default promotion for a module: Optax's Adam mixes dtypes under float64."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def without_shape_checks():
    """Let wrong arguments through to the package's own checks, as they get there for a user."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def benchmark(monkeypatch):
    """Return a function that imports a script of the benchmarks, such as `streams.real`."""
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[1]), *sys.path])
    yield lambda name: importlib.import_module(f"benchmarks.{name}")
    for name in [name for name in sys.modules if name.split(".")[0] == "benchmarks"]:
        del sys.modules[name]


@pytest.fixture
def pipe(monkeypatch):
    """Return the end of a pipe that is written to; standard input is the other end."""
    into, out = os.pipe()
    with os.fdopen(into, "rb") as file, os.fdopen(out, "wb", buffering=0) as writer:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(file))
        yield writer


PROCESS = Path("/proc/self")
MOST_MAPS, MOST_BYTES = 50_000, 3 * 2**30
limit = {"bytes": MOST_BYTES}


@pytest.fixture(scope="module", autouse=True)
def _few_memory_maps():
    """Drop compiled programs near Linux's limit: each has tens of 65,530 memory maps."""
    yield
    maps = PROCESS / "maps"
    if maps.exists() and maps.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()


def _resident():
    size = PROCESS / "statm"
    return int(size.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if size.exists() else 0


@pytest.fixture(autouse=True)
def _bounded_memory():
    """Drop compiled programs at a limit, which rises by what stays: not after every later test."""
    yield
    if _resident() > limit["bytes"]:
        jax.clear_caches()
        gc.collect()
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)  # glibc keeps what is free
        limit["bytes"] = max(MOST_BYTES, _resident() + 2**29)
