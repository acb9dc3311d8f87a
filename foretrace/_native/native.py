"""The step of a learner as a compiled C program, which is called from Python row by row."""

import ctypes
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from foretrace._engine.checks import check_labels
from foretrace._graph.step import learning_graph, without_key
from foretrace._learner.learner import Learner
from foretrace._learner.state import LearnerState
from foretrace._native.compiler import compiled
from foretrace._native.context import Context
from foretrace._native.program import Program, learning_program

_NAME = "model"

_MANY = 1000
"""Number of labels that a native step remembers as valid classes."""


class NativeStep(NamedTuple):
    """Result of a native step.

    Args:
        outputs: outputs of the network before the update, (O,).
        loss: loss of the row.
        accepted: whether the step was accepted. It is refused, and the state is then unchanged, if
            loss, gradient or update is NaN or infinite.
    """

    outputs: np.ndarray
    loss: float
    accepted: bool


class Native:
    """A learner's step in C, with a state that is changed in place.

    `step` does the same as `Learner.step` for one row, in the precision of the network. Sums are
    computed in another order, so the results agree up to rounding. Each object has its own memory,
    so different threads may use different objects. `foretrace.native` makes such an object.
    """

    def __init__(
        self, learner: Learner, state: LearnerState, program: Program, library: ctypes.CDLL
    ):
        self._key, self._learner = state.key, learner
        self._passed: set[Any] = set()
        x, y = (program.graph.data[name] for name in ("x", "y"))
        outputs = program.graph.closed.jaxpr.outvars[0].aval
        self._x, self._y = np.zeros(x.shape, x.dtype), np.zeros(y.shape, y.dtype)
        self._outputs = np.zeros(outputs.shape, outputs.dtype)
        self._context = Context(program, without_key(state))
        self._step, self._predict, self._reset = (
            getattr(library, f"{_NAME}_{part}") for part in ("step", "predict", "reset")
        )
        loss = program.graph.closed.jaxpr.outvars[program.graph.results.index("loss")].aval.dtype
        result = [("loss", np.ctypeslib.as_ctypes_type(loss)), ("accepted", ctypes.c_int32)]
        self._step.restype = type("Result", (ctypes.Structure,), {"_fields_": result})
        self._predict.restype = self._reset.restype = None
        pointers = [self._context.pointer]
        self._step_arguments = (
            *pointers,
            *(ctypes.c_void_p(array.ctypes.data) for array in (self._x, self._y, self._outputs)),
        )
        self._predict_arguments = (
            *pointers,
            *(ctypes.c_void_p(array.ctypes.data) for array in (self._x, self._outputs)),
        )

    def step(self, x: Any, y: Any) -> NativeStep:
        """Learn from a row of shape (I,) and its target.

        Raises:
            TypeError, ValueError: an input or a target has the wrong shape or type, or a label is
                not one of the classes. The state is unchanged.
        """
        _write("x", self._x, x)
        if self._y.dtype.kind == "i":
            self._check_label(np.asarray(y))
        _write("y", self._y, y)
        result = self._step(*self._step_arguments)
        return NativeStep(self._outputs.copy(), result.loss, bool(result.accepted))

    def _check_label(self, y: np.ndarray) -> None:
        """Raise the error of `Learner.step` for an invalid label."""
        network, loss = self._learner.network, self._learner.loss
        if y.dtype.kind not in "iu":
            if y.shape == self._y.shape and y.dtype.kind in "bf":
                outputs = jax.ShapeDtypeStruct(self._outputs.shape, self._outputs.dtype)
                jax.eval_shape(loss, outputs, y)
            return
        # A check takes longer than a small step, so each class is checked once.
        number = y.item() if y.size == 1 else None
        if number in self._passed:
            return
        check_labels(network, loss, self._x[None], y[None])
        # C would keep only the lowest bits of a number that does not fit.
        wrong = y[y.astype(self._y.dtype) != y]
        if wrong.size:
            raise ValueError(f"y holds {wrong[0]}, which is no {self._y.dtype}")
        if number is not None and len(self._passed) < _MANY:
            self._passed.add(number)

    def predict(self, x: Any) -> np.ndarray:
        """Return the outputs for the next row, and update states and sensitivities.

        Raises:
            ValueError: the input has the wrong shape.
        """
        _write("x", self._x, x)
        self._predict(*self._predict_arguments)
        return self._outputs.copy()

    def reset(self) -> None:
        """Set states and sensitivities to their initial values. The parameters do not change."""
        self._reset(self._step_arguments[0])

    def state(self) -> LearnerState:
        """Return a copy of the state, from which `Learner.step` can continue.

        The PRNG key is unchanged, because a native step uses no random numbers.
        """
        return self._context.state()._replace(key=self._key)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "a Native cannot be pickled or copied: its program and memory belong to this process; "
            "pickle native.state(), and make it again by foretrace.native(learner, state)"
        )


def _write(name: str, target: np.ndarray, value: Any) -> None:
    array = np.asarray(value)
    if array.shape != target.shape:
        raise ValueError(
            f"{name} has the shape {array.shape}, expected {target.shape}: native steps take one "
            "row"
        )
    # The first condition takes no time, and the second as long as a small step.
    if array.dtype != target.dtype and not np.can_cast(array.dtype, target.dtype, "same_kind"):
        raise ValueError(f"{name} is of type {array.dtype}, expected {target.dtype}")
    target[...] = array


def native(learner: Learner, state: LearnerState | None = None, *, target: Any = None) -> Native:
    """Return the learning step in machine code, which needs microseconds per row, not hundreds.

    The program equals `foretrace.export(learner, path, "c", learn=True)`. It is compiled once, by
    the C compiler of the machine (`cc`, or the command in CC) or by the wheel `ziglang` (extra
    `native`). It is stored in the user's cache folder, or in the folder FORETRACE_CACHE.

    Args:
        learner: learner of one stream that updates at every step.
        state: initial state. Default: `learner.init()`.
        target: example of a target, of which shape and dtype are used. Default: whichever the loss
            takes, a number for each output or one integer class.

    Raises:
        ValueError: the learner uses batches, whole sequences or accumulated gradients; the rule or
            dropout samples; or an operation cannot be written in C.
        foretrace.CompilerError: there is no C compiler.

    >>> import foretrace as ft, jax, numpy as np, optax
    >>> network = ft.Network(
    ...     2, 1, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(0)
    ... )
    >>> learner = ft.Learner(
    ...     network, rule=ft.ONLINE, optimizer=optax.adam(1e-2), loss=ft.losses.squared_error
    ... )
    >>> native = ft.native(learner)
    >>> native.step(np.ones(2), np.zeros(1)).accepted
    True
    >>> state = native.state()  # JAX continues from here
    """
    state = learner.init() if state is None else state
    # The values are not part of the program, so learners that differ only in them share it.
    blank = jax.tree.map(jnp.zeros_like, without_key(state))._replace(key=state.key)
    written = learning_program(learner, _NAME, blank, learning_graph(learner, blank, target))
    return Native(learner, state, written, compiled(written.source, written.header, _NAME))
