"""Which options of a `Learner` go together."""

from typing import Any, Literal, get_args

from foretrace._groups import check_drawn

SensitivityDtype = Literal["bfloat16"]


def check_options(learner: Any) -> None:
    """Raise a ValueError that names the option that is wrong, and what would be right; see `Learner`."""
    whole, batch_size = learner.whole_sequences, learner.batch_size
    if batch_size is not None and batch_size < 1:
        raise ValueError(f"Learner(batch_size={batch_size}) must be at least 1, or None for one stream")
    if learner.accumulate and whole:
        raise ValueError("accumulate=True sums over the calls of a sequence; whole_sequences=True has only one")
    if learner.rule.predicted and not (learner.accumulate or whole):
        raise ValueError(
            f"under {learner.rule} the parameters must stand still while errors are learned and predicted: set "
            "accumulate=True or whole_sequences=True"
        )
    if learner.rule.predicted and learner.rule.inputs and whole:
        raise ValueError(f"under {learner.rule} on whole sequences nothing is left to be predicted; run it in chunks")
    segment, rule = learner.segment, learner.rule
    in_parts = whole and not (rule.depth or rule.predicted or learner.network.cumulative_mean)
    if segment is not None and (segment < 1 or not in_parts):
        raise ValueError(
            f"Learner(segment={segment}) must be at least 1, and is for whole_sequences=True, rules without credit in "
            "depth or predicted errors and networks without a cumulative mean"
        )
    if rule.drawn and whole:
        raise ValueError(
            f"under {rule} on whole sequences nothing is carried that columns or modules could be drawn from; leave "
            "them out, or run it in chunks"
        )
    check_drawn(learner.network, rule)
    mesh = learner.mesh
    if mesh is not None and (len(mesh.axis_names) != 1 or batch_size is None or batch_size % mesh.size):
        raise ValueError(
            f"Learner(mesh={mesh}) must have one axis of devices that share batch_size={batch_size} evenly"
        )
    _check_sensitivities(learner)


def _check_sensitivities(learner: Any) -> None:
    decay, dtype, rule = learner.sensitivity_decay, learner.sensitivity_dtype, learner.rule
    if not 0 < decay <= 1:
        raise ValueError(f"Learner(sensitivity_decay={decay}) must lie in (0, 1]")
    if dtype not in (None, *get_args(SensitivityDtype)):
        raise ValueError(f"Learner(sensitivity_dtype={dtype!r}) must be 'bfloat16' or None")
    if decay < 1 and (learner.accumulate or learner.whole_sequences):
        raise ValueError("sensitivity_decay is for updates in the middle of a stream; here a sequence ends with each")
    carried = not learner.whole_sequences and (rule.carried or rule.sketches)
    if not carried and (dtype is not None or decay < 1):
        where = "on whole sequences" if learner.whole_sequences else f"under {rule}"
        raise ValueError(
            f"sensitivity_decay={decay} and sensitivity_dtype={dtype!r} are for sensitivities that are carried from "
            f"call to call; {where} there are none: leave them out, or use a rule such as ONLINE in chunks"
        )
