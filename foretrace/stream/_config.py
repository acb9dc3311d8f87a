"""What a run of `foretrace stream` is: a typed dataclass; its docstring is the help of the command."""

import dataclasses
from typing import Literal

from tyro.conf import Positional

from foretrace._learner.learner import SensitivityDtype
from foretrace._rows.encode import Outliers
from foretrace._rows.lines import Encoding
from foretrace._rows.number_target import TargetMode
from foretrace._rows.slots import WhenFull
from foretrace._rows.source import BadRows, Format
from foretrace._rule import RuleName, as_rule

Task = Literal["auto", "classification", "regression"]


Size = Literal["tiny", "small", "medium", "paper"]


SIZES: dict[Size, tuple[int, int, int]] = {
    "tiny": (1, 16, 16),
    "small": (2, 32, 32),
    "medium": (3, 64, 64),
    "paper": (4, 128, 64),
}
"""Depth, model size and state size of the presets."""


@dataclasses.dataclass(frozen=True)
class StreamConfig:
    """A stream, how its rows are read, and the network that learns from it.

    Args:
        source: CSV, TSV, JSON-lines, parquet or text file, gzip or not; or - for standard input.
        target: column to predict; not needed for a text, whose next character is predicted.
        task: classes or numbers; by default classes if the target is text or has few whole numbers.
        horizon: predict the target of the next so many rows; 0 predicts that of the row itself.
        predict: numbers from the running mean (value), from the last known one (change), or from the best linear guess
            in between (auto); the network learns the rest.
        delay: rows after which a label becomes known. A prediction is kept until then, and learned from.
        chunk: rows that are learned together: faster, but a change takes a chunk to act.
        previous: give the last known target as an input.
        member: column that says whose row it is: every sensor, user or place has its own memory, all share the network.
            It is no input, and delay, horizon and the last known target are those of the member.
        members: most of them at a time.
        when_full: one more takes the place of the member that has been silent longest, or is an error.
        together: rows of distinct members that are learned in one step, by their mean; a step has fewer if a member
            comes again before it is full.
        reset: column that is true or 1 on the first row of an episode: there the memory (of its member) begins anew,
            and labels that have not come are given up. It is no input.
        numeric: columns that hold numbers, whatever the first rows look like.
        categorical: columns that hold categories.
        time: columns that hold dates and times in ISO format.
        ignore: columns to leave out.
        format: of the source; by default by its name.
        delimiter: between the fields of a CSV file; a comma, or a tab for TSV, if not given.
        encoding: of the text.
        bad_rows: stop at a row that cannot be read, or skip and count it.
        outliers: what is done with a number more than `bound` standard deviations from its mean, an input or the
            target: brought in to the bound, left out as if missing, or an error. An input that is not a number or
            infinite is left out or an error.
        bound: see outliers.
        categories: places of a categorical column, one of them for the missing and the unknown.
        classes: most classes of the target; by default twice those of the first rows, at least 16, 256 for a text.
        look_ahead: rows from which columns and target are judged before the first is learned.
        size: depth, model size and state size: tiny 1, 16, 16; small 2, 32, 32; medium 3, 64, 64; paper 4, 128, 64.
        depth: number of recurrent layers, in place of that of the size.
        model_size: features between the layers.
        state_size: modules of each layer.
        rule: what is differentiated through time. Row by row, hybrid is the online rule; in chunks, errors go through
            time within a chunk as well, and what lies before it counts by the sensitivities.
        credit_depth: through the memory of how many recurrent layers above a parameter its errors travel as well, at
            any distance; as many as the network has leave nothing out, and 0 is the paper's rule. By default all of
            them if rows are learned one by one and no more than a million numbers are carried for a stream and 256 MiB
            for all (tiny and small networks with few members or late labels), else 0; the run says which. Memory and
            time grow steeply with it.
        learning_rate: of AdamW. With one row at a time, three times as much learns faster at first, but was seen to
            lose after some thousand rows what it had learned.
        clip: largest norm of a gradient; no clipping if None.
        sensitivity_dtype: bfloat16 keeps sensitivities in half the memory, rounded at random; all of it if None.
        train_encoder: train the encoder and the norms in front of the recurrences, too. If their errors are known at
            the present step only, to follow these was seen to undo what was learned within some ten thousand rows; so
            by default they stay as they are, but with credit through all layers, for the rules hybrid and bptt in
            chunks, and for uoro.
        r_min: smallest modulus of the eigenvalues to begin with; closer to 1 remembers longer.
        r_max: largest modulus.
        recurrent_factor: rate of the eigenvalues and input gains relative to the rest. Over a reach of k rows a phase
            turns k times as far as it was changed: for a reach of k rows, take about 1/k.
        seed: of the initial network.
        log_every: rows between lines of metrics.
        checkpoint_every: rows between checkpoints.

    Raises:
        ValueError: a number out of range, or a column with two roles.
    """

    source: Positional[str]
    target: str | None = None
    task: Task = "auto"
    horizon: int = 0
    predict: TargetMode = "auto"
    delay: int = 0
    chunk: int = 1
    previous: bool = True
    member: str | None = None
    members: int = 64
    when_full: WhenFull = "evict"
    together: int = 1
    reset: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    format: Format = "auto"
    delimiter: str | None = None
    encoding: Encoding = "utf-8"
    bad_rows: BadRows = "stop"
    outliers: Outliers = "clip"
    bound: float = 10.0
    categories: int = 16
    classes: int | None = None
    look_ahead: int = 200
    size: Size = "small"
    depth: int | None = None
    model_size: int | None = None
    state_size: int | None = None
    rule: RuleName = "hybrid"
    credit_depth: int | None = None
    learning_rate: float = 1e-3
    clip: float | None = 1.0
    sensitivity_dtype: SensitivityDtype | None = None
    train_encoder: bool | None = None
    r_min: float = 0.0
    r_max: float = 1.0
    recurrent_factor: float = 0.5
    seed: int = 0
    log_every: int = 1000
    checkpoint_every: int = 10_000

    def __post_init__(self) -> None:
        counts = ("chunk", "members", "together", "look_ahead", "log_every", "checkpoint_every")
        for name in (*counts, "depth", "model_size", "state_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value} must be at least 1")
        for name in ("horizon", "delay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}={getattr(self, name)} must not be negative")
        as_rule(self.rule).with_depth(self.credit_depth or 0)  # not every rule carries sensitivities
        if not 0 <= self.seed < 2**31:
            raise ValueError(f"seed={self.seed} must lie in [0, 2^31)")
        if not 0 <= self.r_min < self.r_max <= 1:
            raise ValueError(f"r_min={self.r_min} and r_max={self.r_max} must satisfy 0 <= r_min < r_max <= 1")
        if not self.recurrent_factor >= 0:
            raise ValueError(f"recurrent_factor={self.recurrent_factor} must not be negative; 0 keeps the eigenvalues")
        self._check_columns()
        self._check_members()

    def _check_columns(self) -> None:
        for field in ("numeric", "categorical", "time", "ignore"):
            object.__setattr__(self, field, tuple(getattr(self, field)))  # JSON has lists
        for name in self.named:
            if self.named.count(name) > 1:
                raise ValueError(f"column {name!r} is named twice among numeric, categorical, time and ignore")

    def _check_members(self) -> None:
        if self.together > 1 and self.member is None:
            raise ValueError(f"together={self.together} learns rows of several members in one step: name --member")
        if self.together > self.members:
            raise ValueError(f"together={self.together} rows of distinct members need at least as many --members")
        if self.chunk > 1 and self.many:
            raise ValueError(
                f"chunk={self.chunk} does not go with --member or --reset, whose rows are learned one by one; leave it "
                "out, or learn rows of several members in one step by --together"
            )
        special = [name for name in (self.target, self.member, self.reset) if name is not None]
        for name in special:
            if special.count(name) > 1 or (name != self.target and name in self.named):
                raise ValueError(f"column {name!r} cannot be the --member or the --reset and something else, too")

    @property
    def many(self) -> bool:
        """Whether rows belong to members, be it one that starts anew."""
        return self.member is not None or self.reset is not None

    @property
    def named(self) -> tuple[str, ...]:
        """Columns whose kind is given."""
        return self.numeric + self.categorical + self.time + self.ignore

    def sizes(self) -> tuple[int, int, int]:
        """Return depth, model size and state size."""
        depth, model_size, state_size = SIZES[self.size]
        return self.depth or depth, self.model_size or model_size, self.state_size or state_size
