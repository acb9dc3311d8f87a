"""All recurrent cells.

To add a cell, write its file and name it here. The package, the command line and saved networks
read this list.
"""

import re

from foretrace._cells.abstract import AbstractCell
from foretrace._cells.elementwise_lstm import ElementwiseLSTM
from foretrace._cells.gru import GRU
from foretrace._cells.ind_rnn import IndRNN
from foretrace._cells.lif import LIF
from foretrace._cells.linear_rnn import LinearRNN
from foretrace._cells.lru import LRU
from foretrace._cells.min_gru import MinGRU
from foretrace._cells.min_lstm import MinLSTM
from foretrace._cells.rg_lru import RGLRU
from foretrace._cells.rotation import Rotation
from foretrace._cells.rtu import RTU
from foretrace._cells.s5 import S5
from foretrace._cells.selective_ssm import SelectiveSSM
from foretrace._cells.set_reset import SetReset

__all__ = [
    "LRU",
    "LinearRNN",
    "GRU",
    "ElementwiseLSTM",
    "MinGRU",
    "MinLSTM",
    "RGLRU",
    "S5",
    "SelectiveSSM",
    "RTU",
    "IndRNN",
    "LIF",
    "SetReset",
    "Rotation",
]

CELLS: dict[str, type[AbstractCell]] = {name: globals()[name] for name in __all__}
"""The cells by their class names, in the order of the command line's help."""


def command_name(cell: type) -> str:
    """Return a cell's name on the command line.

    >>> command_name(CELLS["LinearRNN"]), command_name(CELLS["RGLRU"])
    ('linear-rnn', 'rglru')
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", cell.__name__).lower()
