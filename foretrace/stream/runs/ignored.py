"""Options of a stream that were given but have no effect, each with the reason."""

import dataclasses
from collections.abc import Collection

from foretrace.stream.experts.by_name import OF_CLASSES, OF_NUMBERS
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.read.schema import Kind
from foretrace.stream.runs.config import StreamConfig

NO_MEMBERS = "there are no members; the option member names their column"

_OF_COLUMNS = ("numeric", "categorical", "time", "text", "ignore", "outliers")


def ignored(
    config: StreamConfig, *, classes: bool, format: str, kinds: Collection[Kind | None]
) -> list[str]:
    """Return a line for each option that was given but has no effect.

    Args:
        config: configuration of the stream.
        classes: whether classes are predicted.
        format: format of the source.
        kinds: kinds of the input columns.
    """
    no_number = "neither a column nor the target is a number; name columns of numbers by --numeric"
    no_text = "no column holds texts; name it --text"
    no_class = "the target is a number; say --task classification if it is a class"
    checks = (
        (config.member is None, ("members",), NO_MEMBERS),
        (
            format not in ("csv", "tsv"),
            ("delimiter",),
            f"{format} has no delimiter; say --format csv if it is one",
        ),
        (format == "parquet", ("encoding",), "parquet is no text"),
        (
            format in ("parquet", "text"),
            ("bad_rows",),
            f"no single row of {format} can be unreadable",
        ),
        (format == "text", (*_OF_COLUMNS, "categories", "words"), "a text has no columns"),
        (classes and "numeric" not in kinds, ("outliers",), no_number),
        (
            "categorical" not in kinds,
            ("categories",),
            "no column is categorical; name it --categorical",
        ),
        ("text" not in kinds and config.words > 0, ("words",), no_text),
        (not classes, ("classes", "alarm"), no_class),
        (classes, ("coverage",), "the target is a class"),
        ("time" not in kinds, ("keep",), "no column holds times; name it --time"),
    )
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    reasons: dict[str, str] = {}
    for is_ignored, names, reason in checks:
        given = (name for name in names if getattr(config, name) != defaults[name])
        reasons |= {name: reasons.get(name, reason) for name in given if is_ignored}
    lines = [f"--{name.replace('_', '-')} has no effect: {why}" for name, why in reasons.items()]
    return lines + idle_experts(config.model, classes)


def idle_experts(model: ModelConfig, classes: bool) -> list[str]:
    """Return a line for each chosen expert that predicts only numbers, or only classes.

    Args:
        model: options of the model.
        classes: whether classes are predicted.
    """
    idle = OF_NUMBERS if classes else OF_CLASSES
    kinds = ("numbers", "a class") if classes else ("classes", "a number")
    return [
        "the expert {} has no effect: it predicts {}, and the target is {}".format(name, *kinds)
        for name in model.experts or ()
        if name in idle
    ]
