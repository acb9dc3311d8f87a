"""Training on several devices and processes: sharded batches, replicated parameters.

   batch    (B, T, ...)   B / devices sequences on each device, with their states and sensitivities
   network, optimiser     a copy on each device; gradients are averaged once an update

If a learner has the mesh of the devices, it computes the gradient of each device's sequences on
that device, and averages the gradients in one exchange. Up to rounding, the result equals the
result of a single device.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from foretrace._cells.parts import is_key
from foretrace._runs.programs import program
from foretrace._runs.signals import Stop
from foretrace._types import Array, Bool
from foretrace.tasks import Batch

_AXIS = "sequences"


class Devices:
    """The devices that share the batches of a run.

    Args:
        batch_size: number of sequences of a batch.
        number: number of devices. Default: the largest number that divides the batch size; all
            devices if there are several processes.

    Raises:
        ValueError: there are fewer than `number` devices, or the batch size is not a multiple of
            their number.
    """

    def __init__(self, batch_size: int, number: int | None = None):
        there = jax.devices()
        several = jax.process_count() > 1
        chosen = number is None
        if number is None and not several:
            number = max(n for n in range(1, len(there) + 1) if batch_size % n == 0)
        number = len(there) if number is None else number
        if not 1 <= number <= len(there):
            raise ValueError(
                f"devices={number}: expected a number from 1 to {len(there)}, the devices of this "
                "machine"
            )
        if several and number != len(there):
            raise ValueError(
                f"devices={number}: several processes use all their devices, here {len(there)}"
            )
        if batch_size % number:
            raise ValueError(
                f"batch_size={batch_size} cannot be shared evenly by {number} devices; make it a "
                f"multiple of {number}, or use fewer devices"
            )
        self.number, self.num_unused = number, len(there) - number if chosen else 0
        self.is_main_process, self.several = jax.process_index() == 0, several
        self._mesh = Mesh(np.array(there[:number]), (_AXIS,))
        self._same = NamedSharding(self._mesh, PartitionSpec())

    @property
    def mesh(self) -> Mesh | None:
        """One-dimensional device mesh for `Learner`; None for a single device."""
        return None if self.number == 1 else self._mesh

    def shard(self, batch: Batch) -> Batch:
        """Shard the sequences of a batch that a compiled program makes."""
        if self.number == 1:
            return batch
        return jax.lax.with_sharding_constraint(
            batch, NamedSharding(self._mesh, PartitionSpec(_AXIS))
        )

    def compile(self, name: str, function: Callable, of: str | None, **options: Any) -> Callable:
        """Return a function compiled for the devices, with replicated results.

        The arguments are those of `program`. Programs for several devices are not stored.
        """
        if self.number == 1:
            return program(name, function, of, **options)
        donated = (0,) if options.get("changes") else ()
        return jax.jit(function, out_shardings=self._same, donate_argnums=donated)

    def replicate(self, tree: Any) -> Any:
        """Copy arrays that are equal in all processes to every device."""
        if self.number == 1:
            return jax.device_put(tree, may_alias=False)
        return jax.tree.map(self._copy_to_all, tree)

    def unreplicate(self, tree: Any) -> Any:
        """Return the first shard of replicated arrays that this process can read."""
        return tree if self.number == 1 else jax.tree.map(_of_first, tree)

    def gather_flags(self, value: bool) -> Bool[Array, "devices"]:
        """Return the flags of all processes, one for each device."""
        mine, place = np.full(1, value), NamedSharding(self._mesh, PartitionSpec(_AXIS))
        return jax.make_array_from_callback((self.number,), place, lambda _: mine)

    def check_agreed(self, what: str, value: int) -> None:
        """Wait for all processes and check that they have the same value.

        Args:
            what: name of the value, for the error.
            value: value of this process.

        Raises:
            ValueError: the values differ.
        """
        if not self.several:
            return
        leader = int(multihost_utils.broadcast_one_to_all(np.int32(value)))
        agreed = multihost_utils.process_allgather(np.int32(leader == value))
        if not np.all(agreed):
            raise ValueError(
                f"the processes do not agree on {what}: here {value}, in the first process "
                f"{leader}; all must see the same run directory, on a file system that they share"
            )

    def _copy_to_all(self, leaf: Array) -> Array:
        if is_key(leaf):
            data = self._copy_to_all(jax.random.key_data(leaf))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(leaf))
        # Through the host, because a device of this process cannot write to another process's
        # device.
        return jax.device_put(np.asarray(leaf), self._same)


class Steps:
    """A compiled training step that stops all processes at the same step.

    Args:
        devices: devices on which the step runs.
        program: compiled function `(state, at) -> (state, row of numbers)`, which is `agreeing` if
            there are several processes. The buffers of the state that is passed in are donated.
        stop: stop request of this process.
    """

    def __init__(self, devices: Devices, program: Callable, stop: Stop):
        self._devices, self._stop, self._agreed = devices, stop, False
        self._program = program

    def __call__(self, state: Any, at: Any) -> tuple[Any, Array]:
        """Return the state after a step, and the function's row, which `look` reads."""
        if not self._devices.several:
            return self._program(state, at)
        return self._program(state, at, self._devices.gather_flags(self._stop.asked))

    def look(self, row: Array) -> np.ndarray:
        """Return the row of a step as NumPy values."""
        values = np.asarray(row)
        if not self._devices.several:
            return values
        self._agreed = self._agreed or bool(values[-1])
        return values[:-1]

    @property
    def stopped(self) -> bool:
        """Whether to stop. With several processes, the last row that `look` read decides."""
        return self._agreed if self._devices.several else self._stop.asked


def agreeing(function: Callable) -> Callable:
    """Return a step that takes the stop flags of all devices and appends their sum to its row."""

    def step(state: Any, step: Array, asked: Array) -> tuple[Any, Array]:
        state, row = function(state, step)
        # A sum of the row's type is sent with the gradient; another type would need a separate
        # exchange.
        return state, jnp.append(row, asked.astype(row.dtype).sum())

    return step


def _of_first(leaf: Array) -> Array:
    return leaf.addressable_shards[0].data
