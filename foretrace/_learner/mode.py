"""When a learner updates and which carry it keeps: one value made of its options."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class PerCall:
    """Every call updates the parameters and carries states and sensitivities on to the next."""


@dataclasses.dataclass(frozen=True)
class PerSequence:
    """Gradients are summed over a sequence's calls, and its last call updates the parameters."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """Every call is a whole sequence and updates the parameters; nothing is carried.

    Args:
        segment: number of steps whose insides are kept at a time; all of them if None.
    """

    segment: int | None = None


Mode = PerCall | PerSequence | Whole


def make_mode(*, accumulate: bool, whole_sequences: bool, segment: int | None) -> Mode:
    """Return the mode that the options of a `Learner` describe.

    Raises:
        ValueError: options that exclude each other, or a segment below 1.
    """
    if accumulate and whole_sequences:
        raise ValueError(
            "accumulate=True sums over the calls of a sequence; whole_sequences=True has only one"
        )
    if segment is not None and (segment < 1 or not whole_sequences):
        raise ValueError(
            f"Learner(segment={segment}) must be at least 1, and is for whole_sequences=True"
        )
    if whole_sequences:
        return Whole(segment)
    return PerSequence() if accumulate else PerCall()
