"""Several processes for one run: on this machine, on a list of hosts, or as a cluster's scheduler says.

Each process runs the same command. The first one is where the others meet, and the only one that writes.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple

import jax

PORT = 29400
"""Default port where processes on several hosts meet."""


_PLACE = "FORETRACE_PLACE"


class LostProcessError(ConnectionError):
    """Another process of this run is gone."""


class Place(NamedTuple):
    """Which process this is.

    Args:
        meeting: host and port of the first process.
        processes: how many there are.
        process: which one this is, from 0.
    """

    meeting: str
    processes: int
    process: int


def join(place: Place | None) -> None:
    """Meet the other processes; to be called before anything is computed.

    Args:
        place: which process this is; as the scheduler of the cluster says (Slurm, Open MPI) if None.

    Raises:
        ValueError: no cluster that is known, or the others were not met.
    """
    try:
        if place is None:
            jax.distributed.initialize()
        else:
            jax.distributed.initialize(place.meeting, place.processes, place.process)
    except (RuntimeError, ValueError) as error:
        where = "the scheduler of this cluster" if place is None else f"{place.meeting}, process {place.process}"
        raise ValueError(
            f"the processes could not meet ({where}): {error}; check that all run the same command and reach the first"
        ) from error
    _exchange_undisturbed()


def _exchange_undisturbed() -> None:
    """Let threads that wake up wait for those that run: for the batch policy of the scheduler, which Linux alone has.

    The thread that receives wakes up while another one of this process sends, and waits for the lock that the sender
    holds by polling. If it takes the core from the sender, both stand still for a turn of the scheduler, 4 ms: a sum of
    1 MB over two processes took 3.0 ms, and takes 0.6 so. Threads that are started later inherit it.
    """
    if not hasattr(os, "SCHED_BATCH"):
        return
    # A container may forbid it; it is for speed alone. Another policy than the usual one is somebody's choice.
    with contextlib.suppress(OSError):
        if os.sched_getscheduler(0) == os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def place_among(hosts: Sequence[str], port: int, process: int | None) -> Place:
    """Return which process this is of a list of hosts, with one process each.

    Raises:
        ValueError: this machine is not among them, or several times.

    >>> place_among(["node1", "node2"], 29400, process=1)
    Place(meeting='node1:29400', processes=2, process=1)
    """
    meeting = f"{hosts[0]}:{port}"
    if process is not None:
        if not 0 <= process < len(hosts):
            raise ValueError(f"process={process} must lie in 0 to {len(hosts) - 1}: there are {len(hosts)} hosts")
        return Place(meeting, len(hosts), process)
    names = {socket.gethostname(), socket.gethostname().split(".")[0], socket.getfqdn()}
    mine = [i for i, host in enumerate(hosts) if host in names or host.split(".")[0] in names]
    if len(mine) != 1:
        raise ValueError(
            f"this machine is {socket.gethostname()}, which is {len(mine)} times among hosts {' '.join(hosts)}; say "
            "which process this is with --process K, from 0"
        )
    return Place(meeting, len(hosts), mine[0])


def launched() -> Place | None:
    """Return which process this is if `launch` started it."""
    text = os.environ.get(_PLACE)
    if text is None:
        return None
    meeting, processes, process = text.split()
    return Place(meeting, int(processes), int(process))


@contextlib.contextmanager
def loss_explained() -> Iterator[None]:
    """Say what it means that an exchange with other processes fails.

    Raises:
        LostProcessError: another process of this run is gone.
    """
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if jax.process_count() == 1:
            raise
        raise LostProcessError(
            f"another process of this run was lost ({error}); what was saved is unharmed: go on with --resume, in any "
            "number of processes"
        ) from error


def is_first() -> bool:
    """Say whether this is the first process of its run, or the only one."""
    return jax.process_index() == 0


def launch(processes: int, arguments: Sequence[str]) -> int:
    """Run `foretrace` with the same arguments in several processes on this machine; return the exit code of the run.

    If one of them fails, the others are ended: a run that lacks a process cannot go on, but can be resumed.
    """
    meeting = f"127.0.0.1:{_free_port()}"
    command = [sys.executable, "-m", "foretrace", *arguments]
    children = []
    for i in range(processes):
        place = {_PLACE: f"{meeting} {processes} {i}"}
        # What the others print, the first one prints.
        output = None if i == 0 else subprocess.DEVNULL
        children.append(subprocess.Popen(command, env=os.environ | place, stdout=output))
        _pin(children[-1].pid, processes, i)
    return _until_all_end(children)


def _pin(pid: int, processes: int, process: int) -> None:
    """Give a process its share of the cores: each would take all of them, and they would wait for each other."""
    if not hasattr(os, "sched_setaffinity"):
        return
    # Not yet ended is all that is needed: its threads are started later and inherit this.
    with contextlib.suppress(OSError):
        os.sched_setaffinity(pid, share(os.sched_getaffinity(0), processes, process))


def share(cores: Iterable[int], processes: int, process: int) -> list[int]:
    """Return the cores of one of several processes: neighbours, as many as others have, or one more; all if too few.

    >>> [share({0, 1, 2, 3, 4}, 2, i) for i in (0, 1)]
    [[0, 1, 2], [3, 4]]
    >>> share({3}, 2, 1)
    [3]
    """
    known = sorted(cores)
    if len(known) < processes:
        return known
    each, more = divmod(len(known), processes)
    first = process * each + min(process, more)
    return known[first : first + each + (process < more)]


def _until_all_end(children: list[subprocess.Popen]) -> int:
    def pass_on(number: int, frame: FrameType | None) -> None:
        _each(children, lambda child: child.send_signal(number))

    # A terminal sends Ctrl-C to the children itself.
    before: dict[int, Any] = {signal.SIGTERM: signal.signal(signal.SIGTERM, pass_on)}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        while True:
            codes = [child.poll() for child in children]
            failed = [i for i, code in enumerate(codes) if code]
            # All of one mind: the same error everywhere, or stopped (130) where they have ended. One that is lost takes
            # the others with it, sometimes before anyone looks: what a signal ended comes first.
            if failed and len(set(codes)) > 1 and not all(codes[i] == 130 for i in failed):
                first = min(failed, key=lambda i: (codes[i] or 0) > 0)
                print(f"foretrace: process {first} ended with code {codes[first]}", file=sys.stderr)
                _end(children)
                return 1
            if None not in codes:
                return max((code or 0 for code in codes), key=abs)
            time.sleep(0.1)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        _end(children)


def _end(children: list[subprocess.Popen]) -> None:
    """Kill the remaining children; SIGTERM is ignored while a collective is pending."""
    _each(children, subprocess.Popen.kill)
    for child in children:
        child.wait()


def _each(children: list[subprocess.Popen], do: Callable[[subprocess.Popen], None]) -> None:
    for child in children:
        if child.poll() is None:
            do(child)


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
