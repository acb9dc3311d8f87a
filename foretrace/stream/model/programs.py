"""Compiled programs, whose traced and lowered form is stored for later processes.

    first process   function -> StableHLO (`jax.export`) -> file
    later ones      file -> StableHLO

JAX compiles either form, and stores the result in the same folder. The name of a file is a digest
of everything that determines its program. Reading a file executes no code, because StableHLO is
data.
"""

import hashlib
import importlib.metadata
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any

import jax
from jax import export

from foretrace._compiler import plain_loops
from foretrace._learner.packing import Packed
from foretrace._runs.files import write_atomically
from foretrace.stream.experts.network import Refusals
from foretrace.stream.model.arrivals import Outliers
from foretrace.stream.model.intervals import MemberErrors
from foretrace.stream.model.state import Mixed
from foretrace.stream.read.scores import Tallies

# Types in the results of programs, which the files name.
for _kind in (Packed, Mixed, Outliers, MemberErrors, Tallies, Refusals):
    export.register_namedtuple_serialization(_kind, serialized_name=f"foretrace.{_kind.__name__}")

_DIGEST = 32


def program(
    name: str, function: Callable[..., Any], of: str | None, *, changes: bool = False
) -> Callable[..., Any]:
    """Return a compiled function that computes in float64, whatever precision JAX is set to.

    Args:
        name: name of the program.
        function: function to compile.
        of: text of all options on which the function depends. If it is None, the program is not
            stored.
        changes: whether the buffers of the first argument are donated.
    """
    folder = None if of is None else _folder()

    def traced(*arguments: Any) -> Any:
        # Only tests and exports use states that are not packed.
        if of is None or folder is None or not isinstance(arguments[0], Packed):
            return function(*arguments)
        return _kept(folder, name, function, of, arguments)

    traced.__name__ = traced.__qualname__ = name
    # A step takes 6 % longer if a vector loop writes over the covariance that it reads.
    donated = (0,) if changes else ()
    compiled = jax.jit(traced, compiler_options=plain_loops(), donate_argnums=donated)

    @wraps(compiled)
    def in_float64(state: Any, *more: Any) -> Any:
        with jax.enable_x64(True):
            if folder is not None and isinstance(state, Packed) and not state.small[0].committed:
                # The results of a stored program are committed to its device. For a state that is
                # not committed, the program would be compiled once more.
                state = jax.device_put(state, state.small[0].device, donate=changes)
            return compiled(state, *more)

    return in_float64


def _folder() -> Path | None:
    """Return the folder in which JAX stores compiled programs; None if there is none."""
    options = jax.config.values
    place = options["jax_enable_compilation_cache"] and options["jax_compilation_cache_dir"]
    return Path(place) if place and "://" not in place else None


def _kept(
    folder: Path, name: str, function: Callable[..., Any], of: str, arguments: tuple[Any, ...]
) -> Any:
    """Return the results of the program in a file, which is written first if it is missing."""
    leaves, tree = jax.tree.flatten(arguments)
    like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    # The form of a program also depends on options of JAX, such as the promotion of types.
    options = {key: one for key, one in jax.config.values.items() if "cache" not in key}
    platform = export.default_export_platform()
    follows_from = of, str(tree), like, platform, sorted(options.items()), _versions()
    path = folder / f"foretrace-{name}-{hashlib.sha256(repr(follows_from).encode()).hexdigest()}"
    exported = _read(path)
    if exported is None:

        def flat(*leaves: Any) -> Any:
            return function(*jax.tree.unflatten(tree, leaves))

        flat.__name__ = name
        exported = export.export(jax.jit(flat))(*like)
        _write(path, exported)
    return exported.call(*leaves)


def _read(path: Path) -> Any:
    """Return the program in a file, or None. A damaged file is removed and reported."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        if _digest(path, data[_DIGEST:]) != data[:_DIGEST]:
            raise ValueError("its digest does not fit")
        return export.deserialize(bytearray(data[_DIGEST:]))
    except Exception as error:
        path.unlink(missing_ok=True)
        warnings.warn(f"{path} is damaged ({error}); it is removed and made anew", stacklevel=2)
        return None


def _write(path: Path, exported: Any) -> None:
    data = bytes(exported.serialize())
    with suppress(OSError):  # a command runs without the cache, too
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _digest(path, data) + data)


def _digest(path: Path, data: bytes) -> bytes:
    """Return the digest of a file's name and data."""
    return hashlib.sha256(path.name.encode() + data).digest()


@cache
def _versions() -> str:
    """Return the versions of packages, and a digest of this package's source."""
    names = ("foretrace", "jax", "jaxlib", "equinox", "optax", "numpy")
    source = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        source.update(path.read_bytes())
    return f"{[importlib.metadata.version(name) for name in names]} {source.hexdigest()}"
