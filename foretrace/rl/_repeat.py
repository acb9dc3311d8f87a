"""Two of POPGym's tasks: repeat the first card of a deck, or the card of some steps ago."""

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
    """A shuffled deck whose cards are shown one by one; the episode ends with the last card."""

    decks: int = 1

    observation_size: ClassVar[int] = SUITS
    action_count: ClassVar[int] = SUITS
    best_return: ClassVar[float] = 1.0

    @property
    def card_count(self) -> int:
        """Number of cards; an episode has one step less."""
        return SUITS * RANKS * self.decks

    def reset(self, key: PRNGKeyArray) -> tuple[DeckState, Float[Array, "4"]]:
        """Shuffle, and show the first card."""
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
        """Return the place of the card to name, and the number of steps with a question.

        The place is negative if no card has to be named.
        """
        raise NotImplementedError

    def _seen(self, state: DeckState) -> Float[Array, "4"]:
        return jax.nn.one_hot(state.cards[state.step], SUITS, dtype=jnp.result_type(float))


@dataclasses.dataclass(frozen=True)
class RepeatFirst(_Deck):
    """Name the suit of the first card at every step.

        observation = suit of the card that is shown, one-hot
        reward      = 1 / steps if the action is the suit of the first card, else -1 / steps

    An episode shows all cards, so it has `52 * decks - 1` steps and a return from -1 to 1. Random
    actions have -0.5.

    Args:
        decks: number of decks of 52 cards. POPGym's RepeatFirstEasy, Medium and Hard have (1, 8,
            16) decks.

    Raises:
        ValueError: the number of decks is below one.

    Source: Morad et al., POPGym: Benchmarking partially observable reinforcement learning, ICLR
        2023; the rules follow its package 1.0.7.

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

    n is the number of steps with a reward, so that returns go from -1 to 1. Random actions have
    -0.5.

    Args:
        decks: number of decks of 52 cards.
        back: number of steps from the card to be named to the present card. POPGym counts the
            present card too: its k is one more. Its RepeatPreviousEasy, Medium and Hard have (1, 2,
            3) decks and (3, 31, 63) steps back.

    Raises:
        ValueError: the number of decks is below one, or the number of steps is negative or longer
            than an episode.

    Source: as `RepeatFirst`.
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
