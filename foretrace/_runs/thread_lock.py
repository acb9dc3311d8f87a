"""Locks that allow one call at a time on an object that several threads share."""

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar, cast

Method = TypeVar("Method", bound=Callable[..., Any])


class Lock(type(threading.RLock())):  # type: ignore[misc]
    """Reentrant lock. A copy or a pickle of it is a new, free lock.

    This is a subclass of the built-in lock, so a `with` statement acquires it before Python handles
    a signal. Ctrl-C therefore leaves it free.

    >>> import pickle
    >>> lock = Lock()
    >>> with lock, pickle.loads(pickle.dumps(lock)):
    ...     print("both are held")
    both are held
    """

    def __reduce_ex__(self, protocol: Any) -> tuple[type, tuple[()]]:
        return type(self), ()


def locked(method: Method) -> Method:
    """Return a method that holds its owner's `_lock` while it runs."""

    @functools.wraps(method)
    def held(self: Any, *args: Any, **kwargs: Any) -> Any:
        with self._lock:
            return method(self, *args, **kwargs)

    return cast(Method, held)
