"""One call at a time on an object that several threads share."""

import functools
import threading
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Owner = TypeVar("Owner")


class Lock(type(threading.RLock())):  # type: ignore[misc]
    """Lock that its thread may take again. A copy or a pickle is a new, free lock.

    A subclass of the built-in lock: `with` takes it before Python handles a signal, so Ctrl-C
    leaves it free.

    >>> import pickle
    >>> lock = Lock()
    >>> with lock, pickle.loads(pickle.dumps(lock)):
    ...     print("both are held")
    both are held
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[type, tuple[()]]:
        return type(self), ()


def locked(
    method: Callable[Concatenate[Owner, Arguments], Result],
) -> Callable[Concatenate[Owner, Arguments], Result]:
    """Return a method that holds its owner's `_lock` while it runs."""

    @functools.wraps(method)
    def held(self: Owner, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        with self._lock:  # type: ignore[attr-defined]
            return method(self, *args, **kwargs)

    return held
