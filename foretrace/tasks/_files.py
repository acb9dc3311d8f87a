"""Location and verification of public data sets."""

import dataclasses
import functools
import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from foretrace.tasks._cache import cached, digest

VARIABLE = "FORETRACE_DATA"
"""Environment variable with the path of the data directory."""

HOW = f"the environment variable {VARIABLE}, or by --data-dir of `foretrace train`"

_FORMAT = "1"  # changes whenever the results of `decode` functions change
_log = logging.getLogger(__name__)
Arrays = dict[str, np.ndarray]

DataDir = Annotated[str | None, tyro.conf.arg(aliases=("--data-dir",))]
"""Type of the option with the path of the data directory."""


class DataError(ValueError):
    """Data are missing, damaged or not as expected."""


@dataclasses.dataclass(frozen=True, eq=False)  # eq: `load` remembers it by its identity
class Source:
    """A public data set that the user has put into the data directory.

    A file is accepted if its own checksum is known, or if the checksum of its decoded content is
    known. The second is needed because the same content exists in several compressions.

    Args:
        name: name of the data set.
        folder: folder of the data set in the data directory.
        origin: where the user can get it.
        find: function that returns the files of a split in that folder. It raises a
            `FileNotFoundError` that names a missing file.
        decode: function that returns the arrays in these files.
        files: SHA-256 of known files, by name.
        contents: digest of the arrays of each split.
    """

    name: str
    folder: str
    origin: str
    find: Callable[[Path, str], list[Path]]
    decode: Callable[[list[Path]], Arrays]
    files: Mapping[str, str]
    contents: Mapping[str, str]

    @functools.lru_cache(maxsize=32)  # noqa: B019 - there are a handful of sources, and they live as long as the program
    def load(self, split: str, root: Path, verify: bool = True) -> Arrays:
        """Return the arrays of a split, memory-mapped. The first call decodes them.

        Args:
            split: name of the split, a key of `contents`.
            root: data directory.
            verify: whether to refuse files that differ from the public files.

        Raises:
            DataError: a file is missing, damaged, or (with `verify`) not a public file; the package
                that reads it is missing; or the cache cannot be written.
        """
        folder = root / self.folder
        try:
            paths = self.find(folder, split)
            sums = {path.name: sha256(path) for path in paths}
        except OSError as error:
            raise DataError(self._missing(folder, split, error)) from error
        known = all(self.files.get(name) == total for name, total in sums.items())
        key = hashlib.sha256(" ".join([_FORMAT, *sums.values()]).encode()).hexdigest()[:16]
        # Unverified arrays must not be used as verified arrays.
        name = f"{Path(self.folder).parts[0]}-{split}-{key}" + (
            "" if known or verify else "-unverified"
        )
        try:
            return cached(
                name, lambda: self._decode(split, paths, sums, check=verify and not known)
            )
        except OSError as error:
            raise DataError(
                f"the decoded {self.name} data could not be cached: {error}; {CACHE_HINT}"
            ) from error

    def _decode(
        self, split: str, paths: list[Path], sums: Mapping[str, str], *, check: bool
    ) -> Arrays:
        _log.info("decoding %s, %s (once; kept in the cache)", self.name, split)
        try:
            arrays = self.decode(paths)
        except DataError:
            raise
        except Exception as error:  # any error of a decoder for a damaged file
            names = ", ".join(str(path) for path in paths)
            raise DataError(
                f"{self.name}: cannot read {names}: {type(error).__name__}: {error}"
            ) from error
        if check and digest(arrays) != self.contents[split]:
            raise DataError(self._wrong(paths, sums))
        return arrays

    def _missing(self, folder: Path, split: str, error: OSError) -> str:
        return (
            f"{self.name}: no {split} data, {error}. Get {self.origin}, and put the files into "
            f"{folder}; the data directory is chosen by {HOW} (see docs/data.md)"
        )

    def _wrong(self, paths: list[Path], sums: Mapping[str, str]) -> str:
        lines = [
            f"{self.name}: these files are not the public ones (verify=False reads them all the "
            "same):"
        ]
        for path in paths:
            expected = self.files.get(path.name, "none known")
            if sums[path.name] != expected:
                lines.append(f"  {path}: sha256 {sums[path.name]}, expected {expected}")
        return "\n".join(lines)


CACHE_HINT = "choose another place by the environment variable FORETRACE_CACHE"


def data_root(data_dir: str | os.PathLike[str] | None = None) -> Path:
    """Return the data directory: the given one, or else the directory in `FORETRACE_DATA`.

    Raises:
        DataError: there is neither, or the path is not a directory.
    """
    chosen = data_dir if data_dir is not None else os.environ.get(VARIABLE)
    if not chosen:
        raise DataError(
            f"no data directory: name it by {HOW}; docs/data.md says what belongs into it"
        )
    root = Path(chosen).expanduser().resolve()
    if not root.is_dir():
        raise DataError(f"the data directory {root} does not exist; name another by {HOW}")
    return root


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
