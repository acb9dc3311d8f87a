"""Compiled programs, whose traced and lowered form is stored for later processes.

    first process   function -> StableHLO (`jax.export`) -> file
    later ones      file -> StableHLO

JAX compiles either form, and stores the result in the same folder. The name of a file is a digest
of everything that determines its program. Reading a file executes no code, because StableHLO is
data.
"""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import warnings
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from typing import Any

import jax
from jax import export

from foretrace._compiler import plain_loops
from foretrace._learner.packing import Packed
from foretrace._runs.files import write_atomically

# A type in the results of programs, which the files name.
export.register_namedtuple_serialization(Packed, serialized_name="foretrace.Packed")

_DIGEST = 32


def program(
    name: str,
    function: Callable[..., Any],
    of: str | None,
    *,
    changes: bool = False,
    form: Callable[..., Any] | None = None,
    wide: bool = False,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """Return a compiled function.

    Args:
        name: name of the program.
        function: function to compile.
        of: text of all options on which the function depends. If it is None, the program is not
            stored.
        changes: whether the buffers of the first argument are donated.
        form: function of the arguments that returns a tree with the structure of the results.
            Default: the file holds this structure, and the program is stored only for a packed
            first argument, because the file can name the types of such a program.
        wide: whether the function computes in float64, whatever precision JAX is set to, and in
            plain loops: a step of a stream takes 6 % longer if a vector loop writes over the
            covariance that it reads.
        options: compiler options. Default: those of `wide`.
    """
    there = None if of is None else _folder()

    def folder_of(state: Any) -> Path | None:
        # Only tests and exports of streams use states that are not packed.
        return there if form or isinstance(state, Packed) else None

    def traced(*arguments: Any) -> Any:
        if (folder := folder_of(arguments[0])) is None:
            return function(*arguments)
        return _kept(folder, name, function, form, of, arguments)

    traced.__name__ = traced.__qualname__ = name
    options = plain_loops() if options is None and wide else options
    donated = (0,) if changes else ()
    compiled = jax.jit(traced, compiler_options=options, donate_argnums=donated)

    @wraps(compiled)
    def placed(state: Any, *more: Any) -> Any:
        with jax.enable_x64(True) if wide else contextlib.nullcontext():
            if folder_of(state):
                # The results of a stored program are committed to its device. For a state that is
                # not committed, the program would be compiled once more.
                state = _committed(state, donate=changes)
                more = tuple(map(_committed, more)) if form else more
            return compiled(state, *more)

    return placed


def described(config: Any) -> str | None:
    """Return the text of a configuration; None if it has a class of another package.

    The name of a file covers the source of this package only.
    """
    parts = [config]
    for part in parts:
        if dataclasses.is_dataclass(part):
            if not type(part).__module__.startswith("foretrace."):
                return None
            parts += vars(part).values()
        elif isinstance(part, tuple):
            parts += part
    return repr(config)


def _committed(tree: Any, *, donate: bool = False) -> Any:
    """Return a tree whose JAX arrays are committed to their device."""
    for leaf in tree.small if isinstance(tree, Packed) else jax.tree.leaves(tree):
        if not getattr(leaf, "committed", True):
            return jax.device_put(tree, leaf.device, donate=donate)
    return tree


def _folder() -> Path | None:
    """Return the folder in which JAX stores compiled programs; None if there is none."""
    options = jax.config.values
    place = options["jax_enable_compilation_cache"] and options["jax_compilation_cache_dir"]
    return Path(place) if place and "://" not in place else None


def _kept(
    folder: Path,
    name: str,
    function: Callable[..., Any],
    form: Callable[..., Any] | None,
    of: str | None,
    arguments: tuple[Any, ...],
) -> Any:
    """Return the results of the program in a file, which is written first if it is missing."""
    leaves, tree = jax.tree.flatten(arguments)
    like = [
        jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, weak_type=leaf.weak_type)
        for leaf in map(jax.typeof, leaves)
    ]
    # The form of a program also depends on options of JAX, such as the promotion of types.
    options = {key: one for key, one in jax.config.values.items() if "cache" not in key}
    platform = export.default_export_platform()
    follows_from = of, str(tree), like, platform, sorted(options.items()), _versions()
    path = folder / f"foretrace-{name}-{hashlib.sha256(repr(follows_from).encode()).hexdigest()}"
    exported = _read(path)
    if exported is None:

        def flat(*leaves: Any) -> Any:
            found = function(*jax.tree.unflatten(tree, leaves))
            return found if form is None else jax.tree.leaves(found)

        flat.__name__ = name
        try:
            exported = export.export(jax.jit(flat))(*like)
            _write(path, exported)
        except (ValueError, NotImplementedError):
            # JAX cannot store calls of Python or of some libraries. Any other error is raised again
            # here.
            return function(*arguments)
    found = exported.call(*leaves)
    if form is None:
        return found
    return jax.tree.unflatten(jax.tree.structure(form(*arguments)), found)


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
        with contextlib.suppress(OSError):
            path.unlink()
        warnings.warn(f"{path} is damaged ({error}); it is removed and made anew", stacklevel=2)
        return None


def _write(path: Path, exported: Any) -> None:
    data = bytes(exported.serialize())
    with contextlib.suppress(OSError):  # a command runs without the cache, too
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
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        source.update(path.read_bytes())
    return f"{[importlib.metadata.version(name) for name in names]} {source.hexdigest()}"
