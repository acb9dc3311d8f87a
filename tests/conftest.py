"""One setting for all tests: float64, strict promotion, every shape annotation checked at run time."""

import os

# Tests compile hundreds of small programs and run each a few times: leave out what makes a program fast. Set
# XLA_FLAGS yourself (empty, for the compiler's default) to test with other ones.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")

import hypothesis
import jax
import jaxtyping
import pytest
from jax.experimental.compilation_cache import compilation_cache

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# The modules that compute; the programs around them have protocols and `Self`, which beartype does not follow.
CHECKED = "losses _cells _network _recurrence experimental _credit _engine _learner.learner"
jaxtyping.install_import_hook([f"foretrace.{name}" for name in CHECKED.split()], "beartype.beartype")

import foretrace as ft  # noqa: E402 - after the hook

hypothesis.settings.register_profile("tests", deadline=None, max_examples=10, derandomize=True, database=None)
hypothesis.settings.load_profile("tests")

# Sizes are chosen per test, but shared wherever possible: what counts here is the number of compilations.
CELLS = {
    "lru": ft.LRU.factory(state_size=3),
    "linear": ft.LinearRNN.factory(state_size=3),
    "tanh": ft.LinearRNN.factory(state_size=3, tanh=True),
    "gru": ft.GRU.factory(),
    "lstm": ft.ElementwiseLSTM.factory(),
    "mingru": ft.MinGRU.factory(),
    "minlstm": ft.MinLSTM.factory(),
    "rglru": ft.RGLRU.factory(),
    "s5": ft.S5.factory(state_size=3),
    "selective": ft.SelectiveSSM.factory(states_per_channel=2),
    "rtu": ft.RTU.factory(state_size=3),
    "indrnn": ft.IndRNN.factory(),
    "lif": ft.LIF.factory(),
}


@pytest.fixture(scope="module", params=CELLS)
def cell_name(request):
    yield request.param
    jax.clear_caches()  # see _forget_programs; tests are ordered by cell


@pytest.fixture(scope="module")
def make_cell(cell_name):
    """Return `make(size, *, key)` of each architecture in turn."""
    return CELLS[cell_name]


@pytest.fixture(scope="module")
def kept_programs(tmp_path_factory):
    """Keep compiled programs on disk, for tests that compile the same ones; JAX's default promotion."""
    settings = {
        "jax_numpy_dtype_promotion": "standard",  # Optax's Adam takes a float to the power of an integer
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("programs")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


@pytest.fixture
def standard_promotion():
    """JAX's default promotion: Optax's Adam mixes dtypes under float64, so who runs it cannot be strict."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def without_shape_checks():
    """Let wrong arguments through to the package's own checks, as they get there for a user."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module", autouse=True)
def _forget_programs():
    """Drop compiled programs with their module: each is hundreds of memory maps, and a process may have 65,530."""
    yield
    jax.clear_caches()
