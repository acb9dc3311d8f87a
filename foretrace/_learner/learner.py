"""The learner: gradient, optimiser and carry as one state, which learns from a stream."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh

from foretrace._cells.parts import wrapped_key
from foretrace._engine.carry import choose_carry, cleared, init_carry, is_finite
from foretrace._engine.data import Data, counts_any, weighted
from foretrace._engine.forward import run
from foretrace._engine.gradient import Loss, advance_late
from foretrace._learner.checks import check_call, check_options, check_state, warn_of_untrained
from foretrace._learner.chunks import Chunks
from foretrace._learner.forgetting import BLOCK, LossWatch, warn_if_forgotten
from foretrace._learner.kalman import Kalman
from foretrace._learner.options import Options
from foretrace._learner.rows import Rows
from foretrace._learner.state import Info, LearnerState, choose
from foretrace._network import AbstractNetwork
from foretrace._recurrence.chunk import Carry
from foretrace._rule import BPTT, LearningRule, as_rule
from foretrace._types import Array, Bool, Float, Mask, PRNGKeyArray
from foretrace.heads import LeastSquares


class Learner(Options):
    """Train a network on streams, chunk by chunk, under a learning rule.

    The number of steps in the input of `step` determines the mode: one step (real-time recurrent
    learning), a chunk, or a whole sequence. Memory does not grow with the length of the stream.

    By default every call updates the parameters. The sensitivities then belong to earlier
    parameters and are stale, as always in real-time recurrent learning. The effect is small at
    small learning rates and large at large rates (docs/streaming.md has figures). With
    `accumulate=True`, the gradient is summed until a call with `end=True`. There is then one update
    for each sequence, and the gradient is exact (the paper's setting).

    Args:
        network: initial network.
        rule: learning rule or its name.
        optimizer: Optax optimiser such as `foretrace.adamw`, or the second-order step
            `foretrace.kalman`.
        loss: loss of one step, `loss(output, y)`, such as `foretrace.losses.softmax_cross_entropy`.
            If it has a method `check(output_size, ys)`, the learner calls this method with the
            targets before each step.
        head: readout of the features, such as `foretrace.heads.least_squares()`. Default: the
            network's decoder. With a head or with `foretrace.kalman`, every row is a separate step.
        batch_size: number of streams that are trained side by side. Default: one stream, without a
            batch axis.
        accumulate: whether each sequence has only one update, in the call with `end=True`. The next
            call begins the next sequence.
        whole_sequences: whether every call is a whole sequence. Nothing is then carried, and a call
            costs as much as backpropagation through time.
        mean_loss: whether the loss of each stream in a call is divided by the sum of its weights.
            The size of an update then does not depend on the number of steps that count.
        segment: number of steps of a whole sequence whose intermediate values are stored at a time.
            The others are computed again, which costs one more forward pass. The gradient is the
            same, and memory hardly grows with the length of the sequence. Default: all steps.
        train_encoder: whether the encoder and the norms in front of the recurrent layers are
            trained. By default they are not trained if two conditions hold: the learner updates at
            every call, and its rule propagates no errors of later steps to these parameters
            (ONLINE, or HYBRID with one step in each call). In this case, training these
            parameters would lose accuracy in long runs (docs/streaming.md).
        mesh: one-dimensional device mesh over which the streams of a batch are sharded. Gradients
            are averaged in one exchange.
        warn: whether to warn of parameters that can receive no gradient under the rule.

    Raises:
        TypeError: the network, the optimiser or the loss has the wrong type.
        ValueError: the rule is unknown, batch_size or segment is below 1, a segment is given
            without whole_sequences, the streams cannot be sharded over the mesh, or accumulate is
            combined with whole_sequences or mean_loss.

    >>> import foretrace as ft, jax, jax.numpy as jnp, optax
    >>> network = ft.Network(
    ...     2, 3, model_size=8, depth=2, cell=ft.LRU.factory(state_size=4), key=jax.random.key(0)
    ... )
    >>> learner = ft.Learner(
    ...     network,
    ...     rule=ft.ONLINE,
    ...     optimizer=optax.adamw(1e-3),
    ...     loss=ft.losses.softmax_cross_entropy,
    ... )
    >>> state = learner.init()
    >>> state, info = learner.step(state, jnp.ones((1, 2)), jnp.array([1]))
    >>> int(state.step)
    1
    """

    def __init__(
        self,
        network: AbstractNetwork,
        *,
        rule: LearningRule | str,
        optimizer: optax.GradientTransformation | Kalman,
        loss: Loss,
        head: LeastSquares | None = None,
        batch_size: int | None = None,
        accumulate: bool = False,
        whole_sequences: bool = False,
        mean_loss: bool = False,
        segment: int | None = None,
        train_encoder: bool | None = None,
        mesh: Mesh | None = None,
        warn: bool = True,
    ):
        self.network = network
        self.rule: LearningRule = as_rule(rule)
        self.optimizer = optimizer
        self.loss = loss
        self.head = head
        self.batch_size = batch_size
        # Without the types of its axes: with those of `jax.make_mesh`, JAX would want the sharding
        # of every array said.
        self.mesh = None if mesh is None else Mesh(mesh.devices, mesh.axis_names)
        self.mean_loss = mean_loss
        self.train_encoder = train_encoder
        self.accumulate = accumulate
        self.whole_sequences = whole_sequences
        self.segment = segment
        check_options(self)
        if warn:
            warn_of_untrained(network, self.rule)
        self._learning = Rows(self) if self.learns_rows else Chunks(self)
        self._step = jax.jit(self._traced_step, static_argnames=("end", "last"))
        self._predict = jax.jit(self._traced_predict, static_argnames="sensitivity")

    def init(self, key: PRNGKeyArray | None = None) -> LearnerState:
        """Return the state before the first step. It shares no memory with the learner.

        Args:
            key: PRNG key of the dropout masks and of the modules that a rule samples. A raw key
                (`jax.random.PRNGKey`) is wrapped. Default: `jax.random.key(0)`.

        Raises:
            TypeError: `key` is no PRNG key.
        """
        key = wrapped_key("init", jax.random.key(0) if key is None else key)
        opt_state, head, errors = self._learning.init(self.network)
        state = LearnerState(
            network=self.network,
            opt_state=opt_state,
            carry=self.fresh_carry(self.network, key),
            grads=jax.tree.map(jnp.zeros_like, self.network) if self.accumulate else None,
            counted=jnp.zeros((), bool) if self.accumulate else None,
            step=jnp.zeros((), jnp.int32),
            skipped=jnp.zeros((), jnp.int32),
            key=key,
            head=head,
            errors=errors,
        )
        return jax.device_put(state, may_alias=False)  # it may be donated

    def step(
        self,
        state: LearnerState,
        x: Float[Array, "*B C I"],
        y: Array,
        *,
        mask: Mask | None = None,
        reset: Bool[Array, "*B C"] | None = None,
        end: bool = False,
        last: bool = False,
    ) -> tuple[LearnerState, Info]:
        """Learn from the next chunk of the stream.

        Args:
            state: state from `init` or from the previous call. It is not changed.
            x: inputs (C, I), or (B, C, I) for a batch of streams.
            y: targets, with the same axes in front.
            mask: booleans or weights, (C,) or (B, C), that say whether each step counts.
            reset: booleans of the same shape that say whether each step starts an episode.
            end: whether the sequence ends with this chunk. The next call then begins in the initial
                state, and an accumulated gradient is applied.
            last: whether each sequence has only one target, so that y has the shape (…) or (B, …).
                It is compared with the output of the last step that counts. Only for
                whole_sequences=True.

        Returns:
            The next state, and measurements. The call is refused if loss, gradient, update, states
            or sensitivities are NaN or infinite: then only `skipped` changes in the state, and
            `info.accepted` is False. With end=True, a refused call still ends the sequence, and the
            summed gradient is dropped. If no step counts, parameters and optimiser do not change.

        Raises:
            TypeError, ValueError: as in `gradient`, or the state belongs to another learner. The
                state is not changed.
        """
        check_call(self, state, x, y, mask, reset, last=last)
        return self._step(state, x, y, mask, reset, end=end, last=last)

    def run(
        self, state: LearnerState, stream: Iterable[tuple[Any, Any]]
    ) -> Iterator[tuple[LearnerState, Info]]:
        """Learn from each element of a stream in turn; yield the results of `step`.

        Args:
            state: state from `init` or an earlier call.
            stream: pairs (x, y) as in `step`, or single rows x (I,) with their targets.

        Yields:
            The state after each element, and measurements. Keep the last state to continue.

        Warns:
            Forgetting: the loss of a row has stayed clearly above a level that learning had
                reached. This is checked every 1,000 elements.

        Raises:
            TypeError, ValueError: as in `step`.

        >>> import foretrace as ft, jax, jax.numpy as jnp, optax
        >>> network = ft.Network(
        ...     2, 1, model_size=4, depth=1, cell=ft.MinGRU.factory(), key=jax.random.key(0)
        ... )
        >>> learner = ft.Learner(
        ...     network, rule=ft.ONLINE, optimizer=optax.sgd(0.1), loss=ft.losses.squared_error
        ... )
        >>> for state, info in learner.run(learner.init(), [(jnp.ones(2), jnp.zeros(1))] * 3):
        ...     pass
        >>> int(state.step)
        3
        """
        watch, losses = LossWatch(), []
        for x, y in stream:
            if np.ndim(x) == 1:
                x, y = jnp.asarray(x)[None], jnp.asarray(y)[None]
            state, info = self.step(state, x, y)
            losses.append((info.loss, 1 if self.mean_loss else np.shape(x)[-2]))
            if len(losses) == BLOCK:
                warn_if_forgotten(watch, losses)
                losses = []
            yield state, info

    def predict(
        self,
        state: LearnerState,
        x: Float[Array, "*B C I"],
        *,
        reset: Bool[Array, "*B C"] | None = None,
        sensitivity: bool = True,
    ) -> tuple[Float[Array, "*B C O"], LearnerState]:
        """Return the outputs of the next chunk and the state after it, without learning.

        Both states share the parts that do not change, such as the network. If the carry of a
        stream becomes NaN or infinite, it is left unchanged, and `skipped` counts the call.

        Args:
            state: state from `init` or `step`.
            x: inputs of the chunk.
            reset: booleans that say whether each step starts an episode.
            sensitivity: whether the sensitivities are updated too, so that gradients stay exact if
                learning continues after this call. If not, a call costs only the forward pass, and
                later gradients give no credit to earlier steps.

        Raises:
            TypeError, ValueError: as in `gradient`, or the state belongs to another learner.
        """
        check_call(self, state, x, None, None, reset)
        # Unchanged parts are not results of the program, because copying them takes as long as a
        # row.
        outputs, changed = self._predict(state, x, reset, sensitivity=sensitivity)
        return outputs, state._replace(**changed)

    def readout(self, state: LearnerState) -> Callable[[Array], Array]:
        """Return the function from the features of a step to its outputs."""
        return self._learning.read(state.network, state.head)

    def fresh_carry(self, network: AbstractNetwork, key: PRNGKeyArray) -> Carry | None:
        """Return the carry before a sequence; None for a learner of whole sequences.

        Args:
            network: network with its present parameters, from which modules may be sampled by their
                memory.
            key: PRNG key of the learner's state. Each sequence has a new key, and so new samples.
        """
        if self.whole_sequences:
            return None
        # 1 is for the dropout masks, 2 for the modules that the rule samples.
        own = jax.random.fold_in(key, 2) if self.rule.samples else None
        return self.init_carry(network, self.batch_size, own)

    def init_carry(
        self, network: AbstractNetwork, batch_size: int | None, key: PRNGKeyArray | None = None
    ) -> Carry:
        """Return the carry of a stream before its first step, for this learner's rule."""
        return init_carry(network, self.rule, batch_size, key=key)

    def _traced_step(
        self,
        state: LearnerState,
        x: Array,
        y: Array,
        mask: Array | None,
        reset: Array | None,
        *,
        end: bool = False,
        last: bool = False,
    ) -> tuple[LearnerState, Info]:
        check_state(jax.eval_shape(self.init), state)
        data = Data(x, y, mask, reset, jax.random.fold_in(state.key, 1))
        weights = weighted(data, mean_loss=self.mean_loss, last=last)
        after, info, late = self._learning.learn(state, weights, end=end)
        counted = counts_any(mask) if state.counted is None else state.counted | counts_any(mask)
        update_norm = jnp.where(counted, info.update_norm, 0)
        accepted = info.accepted & is_finite((info.loss, info.gradient_norm, update_norm))
        after = after._replace(
            step=optax.safe_increment(state.step),
            counted=counted if self.accumulate else None,
        )
        before: Any = state._replace(skipped=optax.safe_increment(state.skipped))
        if end:
            after, before = (s._replace(carry=None) for s in (after, before))
        elif late:
            carry = before.carry
            e, fine = advance_late(state.network, carry, data, rule=self.rule, accepted=accepted)
            accepted &= fine
            # These are chosen already, in place. Choosing again would keep a copy of the
            # overwritten part.
            after, before = (s._replace(carry=s.carry._replace(e=e)) for s in (after, before))
        chosen = choose(accepted, counted, after, before)
        return self._ended(chosen, after.key) if end else chosen, info._replace(
            update_norm=jnp.where(accepted, update_norm, 0), accepted=accepted
        )

    def _ended(self, state: LearnerState, key: PRNGKeyArray) -> LearnerState:
        """Return the state before the next sequence, also after a refused one."""
        return state._replace(
            carry=self.fresh_carry(state.network, key),
            grads=jax.tree.map(jnp.zeros_like, state.grads),
            counted=jax.tree.map(jnp.zeros_like, state.counted),
            key=key,
        )

    def _traced_predict(
        self, state: LearnerState, x: Array, reset: Array | None, *, sensitivity: bool
    ) -> tuple[Array, dict[str, Any]]:
        check_state(jax.eval_shape(self.init), state)
        before, data, readout = state.carry, Data(x, reset=reset), self.readout(state)
        if before is None:
            return run(state.network, None, data, rule=self.rule, return_carry=False)[0], {}
        late = sensitivity and self.advances_late(state.network, x.shape[-2])
        start, rule = (before, self.rule) if sensitivity else (Carry(before.h, None), BPTT)
        outputs, after = run(
            state.network, start, data, rule=rule, accepted=not late, readout=readout
        )
        assert after is not None
        if not sensitivity:
            # The network itself has no sensitivities to update, and its key is unchanged.
            after, before = (cleared(before._replace(h=h)) for h in (after.h, before.h))
        # Streams do not mix here, so a stream that overflows does not stop the others.
        accepted = is_finite(after, of_streams=x.ndim == 3 and not late)
        if late:
            e, fine = advance_late(state.network, before, data, rule=self.rule, accepted=accepted)
            accepted &= fine
            after, before = after._replace(e=e), before._replace(e=e)
        skipped = jnp.where(accepted.all(), state.skipped, optax.safe_increment(state.skipped))
        return outputs, {"carry": choose_carry(accepted, after, before), "skipped": skipped}
