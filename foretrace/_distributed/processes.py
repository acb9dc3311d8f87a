"""Several processes of one run, as the scheduler of a cluster starts them.

Each process runs the same command. The first process writes all files, and the others connect to
it.
"""

import contextlib
from collections.abc import Iterator

import jax


class LostProcessError(ConnectionError):
    """Another process of this run has ended."""


def join() -> None:
    """Connect to the other processes of Slurm or Open MPI, before any computation.

    Raises:
        ValueError: no known cluster was found, or the other processes did not connect.
    """
    try:
        jax.distributed.initialize()
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"the processes could not meet: {error}; --cluster needs a command that Slurm (srun) "
            "or Open MPI (mpirun) starts in every process"
        ) from error


@contextlib.contextmanager
def loss_explained() -> Iterator[None]:
    """Explain a failed exchange with other processes.

    Raises:
        LostProcessError: another process of this run has ended.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise LostProcessError(
            f"another process of this run was lost ({error}); what was saved is unharmed: go on "
            "with `foretrace resume`, in any number of processes"
        ) from error


def is_first() -> bool:
    """Return whether this is the first process of its run, or the only one."""
    return jax.process_index() == 0
