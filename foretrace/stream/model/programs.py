"""Compiled programs, and what was traced and lowered for them, kept for later processes.

    first process   function -> StableHLO (`jax.export`) -> file
    later ones      file -> StableHLO

JAX compiles either form, and keeps the result in the same folder. The name of a file is a digest of
all that its program follows from. Reading a file executes no code, since StableHLO is data.
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

from foretrace._compiler import plain_loops
from foretrace._learner.packing import Packed
from foretrace._runs.files import write_atomically
from foretrace.stream.experts.network import Refusals
from foretrace.stream.model.arrivals import Outliers
from foretrace.stream.model.intervals import MemberErrors
from foretrace.stream.model.state import Mixed
from foretrace.stream.read.scores import Tallies

_RETURNED = (Packed, Mixed, Outliers, MemberErrors, Tallies, Refusals)
"""Types in the results of programs, which files name."""

_DIGEST = 32


def program(
    name: str, function: Callable[..., Any], of: str | None, *, changes: bool = False
) -> Callable[..., Any]:
    """Return a compiled function that computes in float64, whatever JAX is set to.

    Args:
        name: name of the program.
        function: function to compile.
        of: text of all options that the function follows from; None if it is not to be kept.
        changes: whether its first argument is donated.
    """
    folder = None if of is None else _folder()

    def traced(*arguments: Any) -> Any:
        # States that are not packed are for tests and exports.
        if of is None or folder is None or not isinstance(arguments[0], Packed):
            return function(*arguments)
        return _kept(folder, name, function, of, arguments)

    traced.__name__ = traced.__qualname__ = name
    # A step takes 6 % longer: no vector loop writes over the covariance that it reads.
    donated = (0,) if changes else ()
    compiled = jax.jit(traced, compiler_options=plain_loops(), donate_argnums=donated)

    @wraps(compiled)
    def in_float64(state: Any, *more: Any) -> Any:
        with jax.enable_x64(True):
            if folder is not None and isinstance(state, Packed) and not state.small[0].committed:
                # What a kept program returns is bound to its device; for a state that is not, the
                # program would be compiled once more.
                state = jax.device_put(state, state.small[0].device, donate=changes)
            return compiled(state, *more)

    return in_float64


def _folder() -> Path | None:
    """Return the folder where JAX keeps compiled programs; None without one."""
    options = jax.config.values
    place = options["jax_enable_compilation_cache"] and options["jax_compilation_cache_dir"]
    return Path(place) if place and "://" not in place else None


def _kept(
    folder: Path, name: str, function: Callable[..., Any], of: str, arguments: tuple[Any, ...]
) -> Any:
    """Return the results of a program from its file, which is written if it is not there."""
    _register()
    leaves, tree = jax.tree.flatten(arguments)
    like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    # The form of a program also depends on the options of JAX, such as its promotion of types.
    options = {key: one for key, one in jax.config.values.items() if "cache" not in key}
    platform = jax.export.default_export_platform()
    follows_from = of, str(tree), like, platform, sorted(options.items()), _versions()
    path = folder / f"foretrace-{name}-{hashlib.sha256(repr(follows_from).encode()).hexdigest()}"
    exported = _read(path)
    if exported is None:

        def flat(*leaves: Any) -> Any:
            return function(*jax.tree.unflatten(tree, leaves))

        flat.__name__ = name
        exported = jax.export.export(jax.jit(flat))(*like)
        _write(path, exported)
    return exported.call(*leaves)


def _read(path: Path) -> Any:
    """Return the program in a file; None without one. A damaged file is removed, and told."""
    try:
        data = path.read_bytes()
    except OSError:
        return None
    try:
        if _digest(path, data[_DIGEST:]) != data[:_DIGEST]:
            raise ValueError("its digest does not fit")
        return jax.export.deserialize(bytearray(data[_DIGEST:]))
    except Exception as error:
        path.unlink(missing_ok=True)
        warnings.warn(f"{path} is damaged ({error}); it is removed and made anew", stacklevel=2)
        return None


def _write(path: Path, exported: Any) -> None:
    data = bytes(exported.serialize())
    with suppress(OSError):  # a cache stops no command
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, _digest(path, data) + data)


def _digest(path: Path, data: bytes) -> bytes:
    """Return the digest of a file, to which its name belongs."""
    return hashlib.sha256(path.name.encode() + data).digest()


@cache
def _versions() -> str:
    """Return the versions of packages, and a digest of this package's own source."""
    names = ("foretrace", "jax", "jaxlib", "equinox", "optax", "numpy")
    source = hashlib.sha256()
    for path in sorted(Path(__file__).parents[2].rglob("*.py")):
        source.update(path.read_bytes())
    return f"{[importlib.metadata.version(name) for name in names]} {source.hexdigest()}"


@cache
def _register() -> None:
    for kind in _RETURNED:
        jax.export.register_namedtuple_serialization(
            kind, serialized_name=f"foretrace.{kind.__name__}"
        )
