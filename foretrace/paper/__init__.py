"""The paper's experiments as data, and their reproduction."""

from foretrace.paper._catalogue import NAMES as NAMES
from foretrace.paper._catalogue import Name as Name
from foretrace.paper._catalogue import load as load
from foretrace.paper._catalogue import scales as scales
from foretrace.paper._experiment import Entry as Entry
from foretrace.paper._experiment import Experiment as Experiment
from foretrace.paper._experiment import Scale as Scale
