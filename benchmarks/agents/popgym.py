"""POPGym's environments, level Easy, under ids of gymnasium, with POPGym's own wrappers.

The observation is flattened and holds the previous action and whether an episode begins.
"""

from functools import partial

import gymnasium
from popgym import envs
from popgym.wrappers import Antialias, Flatten, PreviousAction


def wrapped(kind):
    """Return an environment of a kind in its wrappers."""
    return Flatten(Antialias(PreviousAction(kind())))


for name in ("RepeatFirst", "RepeatPrevious", "CountRecall", "Autoencode"):
    make = partial(wrapped, getattr(envs, f"{name}Easy"))
    gymnasium.register(f"{name}-v0", make, disable_env_checker=True)
