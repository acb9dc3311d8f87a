"""Two tasks of POPGym: name the first card of a deck, or the card of some steps ago."""

import dataclasses
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from foretrace._types import Array, Float, Int, PRNGKeyArray
from foretrace.rl._environment import TimeStep
from foretrace.rl._task import Task

SUITS, RANKS = 4, 13


class DeckState(NamedTuple):
    """Suits of the cards in dealing order, and number of cards dealt after the first."""

    cards: Int[Array, "N"]
    step: Int[Array, ""]


@dataclasses.dataclass(frozen=True)
class _Deck(Task):
    """A shuffled deck whose cards are shown one by one. The last card ends the episode."""

    decks: int = 1

    observation_size: ClassVar[int] = SUITS
    action_count: ClassVar[int] = SUITS
    best_return: ClassVar[float] = 1.0

    @property
    def card_count(self) -> int:
        """Number of cards. An episode has one step less."""
        return SUITS * RANKS * self.decks

    def reset(self, key: PRNGKeyArray) -> tuple[DeckState, Float[Array, "4"]]:
        """Shuffle the deck, and show the first card."""
        suits = jnp.arange(self.card_count, dtype=jnp.int32) % SUITS
        state = DeckState(jax.random.permutation(key, suits), jnp.zeros((), jnp.int32))
        return state, self._seen(state)

    def step(
        self, state: DeckState, action: Int[Array, ""], key: PRNGKeyArray
    ) -> tuple[DeckState, TimeStep]:
        """Name a suit, and show the next card."""
        asked, steps = self._asked(state.step)
        right = jnp.where(action == state.cards[jnp.maximum(asked, 0)], 1.0, -1.0)
        after, reward = state._replace(step=state.step + 1), jnp.where(asked >= 0, right, 0.0)
        end = after.step == self.card_count - 1
        return after, TimeStep.of(self._seen(after), reward / steps, end)

    def _asked(self, step: Int[Array, ""]) -> tuple[Int[Array, ""], int]:
        """Return the position of the card to name, and the number of steps with a reward.

        The position is negative if no card has to be named.
        """
        raise NotImplementedError

    def _seen(self, state: DeckState) -> Float[Array, "4"]:
        return jax.nn.one_hot(state.cards[state.step], SUITS, dtype=jnp.result_type(float))


@dataclasses.dataclass(frozen=True)
class RepeatFirst(_Deck):
    """Name the suit of the first card at every step.

        observation = suit of the card that is shown, one-hot
       reward      = 1 / steps if the action is the suit of the first card, else -1 / steps

    All cards are shown, so an episode has `52 * decks - 1` steps. Its return lies between -1 and 1,
    and random actions have a mean return of -0.5.

    Args:
        decks: number of decks of 52 cards. POPGym's RepeatFirstEasy, RepeatFirstMedium and
            RepeatFirstHard have 1, 8 and 16 decks.

    Raises:
        ValueError: the number of decks is below one.

    Source: Morad et al., POPGym: Benchmarking partially observable reinforcement learning, ICLR
        2023; the rules follow version 1.0.7 of the package popgym.

    >>> RepeatFirst().observation_size, RepeatFirst().action_count
    (4, 4)
    """

    def _asked(self, step: Int[Array, ""]) -> tuple[Int[Array, ""], int]:
        return jnp.zeros_like(step), self.card_count - 1


@dataclasses.dataclass(frozen=True)
class RepeatPrevious(_Deck):
    """Name the suit of the card that was shown some steps before the present one.

        observation = suit of the card that is shown, one-hot
        reward      = 1 / n if the action is the suit of the card `back` steps ago, else -1 / n;
                      0 while fewer cards than that have been shown

    n is the number of steps with a reward. The return of an episode lies between -1 and 1, and
    random actions have a mean return of -0.5.

    Args:
        decks: number of decks of 52 cards.
        back: number of steps from the card to be named to the present card. It is smaller by one
            than POPGym's k, which also counts the present card. POPGym's RepeatPreviousEasy,
            RepeatPreviousMedium and RepeatPreviousHard have 1, 2 and 3 decks, and 3, 31 and 63
            steps back.

    Raises:
        ValueError: the number of decks is below one, or `back` is negative or too long for an
            episode.

    Source: as in `RepeatFirst`.
    """

    back: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.back > self.card_count - 2:
            raise ValueError(
                f"RepeatPrevious(back={self.back}) must be at most {self.card_count - 2}: the deck "
                f"has {self.card_count} cards"
            )

    def _asked(self, step: Int[Array, ""]) -> tuple[Int[Array, ""], int]:
        return step - self.back, self.card_count - 1 - self.back
