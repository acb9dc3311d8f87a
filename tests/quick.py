"""Compilation of test programs: hundreds of small ones, so fast rather than optimised."""

from jaxlib.version import __version_info__

FLAGS = "--xla_backend_optimization_level=0"
"""Value of XLA_FLAGS, also for the processes that tests start."""

if __version_info__ < (0, 11):  # from then on an unknown flag, which ends the process
    FLAGS += " --xla_cpu_use_fusion_emitters=false"
