"""Check of your own cell: the equalities that every cell must satisfy, and their definitions."""

from foretrace.testing._check import Law as Law
from foretrace.testing._check import Report as Report
from foretrace.testing._check import check_cell as check_cell
from foretrace.testing._definitions import finite_difference as finite_difference
from foretrace.testing._definitions import gradient_by_definition as gradient_by_definition
from foretrace.testing._definitions import plain_states as plain_states
from foretrace.testing._definitions import rtrl_by_definition as rtrl_by_definition
from foretrace.testing._definitions import snap1_by_definition as snap1_by_definition
