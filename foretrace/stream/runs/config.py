"""Options of a run of `foretrace stream`. The docstrings are the help texts of the command."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Literal

import tyro
from tyro.conf import Positional

from foretrace.stream.model.intervals import check_at_least, check_coverage
from foretrace.stream.model.model_config import MOST, ModelConfig
from foretrace.stream.read.ahead import Ahead
from foretrace.stream.read.encode import WORDS, Outliers
from foretrace.stream.read.formats import UNIX, check_date_format
from foretrace.stream.read.lines import STDIN, Encoding
from foretrace.stream.read.schema import Kind
from foretrace.stream.read.source import BadRows, Format
from foretrace.stream.read.topic import Topic, topic_in
from foretrace.stream.read.values import as_number

LEAST = {"horizon": 0, "delay": 0, "words": 0, "waiting": 0}
LEAST |= dict.fromkeys(("members", "log_every", "checkpoint_every"), 1)
"""Lower limits of options."""

STDOUT = "-"
"""Name of standard output, where predictions may go."""

CHUNK = 32
"""Number of rows that are learned in one call where as many are at hand, as in a file."""

LOOK_AHEAD = 200
"""Number of rows that determine the kinds of columns and target before any row is learned."""

LINE_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}
"""Format of a file of predictions by its suffix."""

Task = Literal["auto", "classification", "regression"]


@dataclasses.dataclass(frozen=True)
class StreamConfig:
    """A stream, the way its rows are read, and the model that learns from it.

    Args:
        source: CSV, TSV, JSON-lines, parquet or text file, gzip or not; - for standard input;
            kafka://HOST:PORT/TOPIC for a topic of Kafka, which all processes of a run share.
        target: column to predict. Not needed for a text, whose next character is predicted.
        task: whether the target is a class or a number. Default: a class if the target is text, or
            if the first rows have only whole numbers, 2 to 20 different ones; otherwise a number.
        horizon: number of rows ahead whose targets are predicted; 0 predicts the target of the row
            itself.
        known: numeric columns whose future values are known, such as a planned promotion. A
            forecast of a row uses their values in that row. Rows at the end of the file without a
            target are future rows, read only for these values.
        delay: number of rows after which a label becomes known. A row is learned when its label
            arrives.
        previous: whether the last known target is an input of the network and of the experts.
        member: column that names the sensor, user or place of a row. Each member has its own
            memory, delay, horizon and last known target. All members share the experts and the
            network. The column is not an input.
        members: maximum number of members. A further member replaces the member that was seen least
            recently.
        reset: column that is true or 1 on the first row of an episode. The memory (of the row's
            member) then starts anew, and its pending labels are dropped. The column is not an
            input.
        id: column that names a row, in the predictions and, with `waiting`, in the line of a label
            that arrives later. The column is not an input.
        waiting: maximum number of rows that wait for their labels, which may arrive in any order. A
            row with an id and without a target waits until a later line has this id and the target.
            If a further row arrives, the oldest row is dropped. Needs `id`. Not possible together
            with `horizon`, `delay` or `outliers=stop`.
        keep: longest time that a row waits, measured by the first column of dates: a number of
            seconds, or of minutes, hours or days, as in 90m, 12h or 7d. Default: no limit.
        journal: file to which lines of standard input are written before they are learned. A
            resumed run continues from there. A new run that reads the journal gives the same
            results.
        like: file with the same columns as the source. Its first rows determine the kinds of the
            columns and of the target, so that the first row of a live source is learned at once.
        predictions: file NAME.csv or NAME.jsonl for the prediction of each row, which is written
            before the next row is read, or for a file at most 32 rows later; - for CSV on standard
            output; kafka://HOST:PORT/TOPIC if the source is a topic. Default: none.
        numeric: columns that hold numbers, even if their first values look different.
        categorical: columns that hold categories.
        time: columns that hold dates and times, in ISO format or in one of `strptime`, as in
            "opened=%d.%m.%Y %H:%M", or in seconds since 1970, as in "opened=unix".
        text: columns that hold texts of words. Default: categories whose first values mostly
            differ, and have three words or more (eight, if there are fewer than 20).
        ignore: columns to leave out.
        expert_column: columns of numbers that hold predictions of the row's target by other models.
            Each is an expert of the mixture, and not an input. Numbers only, without a horizon.
        format: format of the source. Default: the format that its name indicates.
        delimiter: character between the fields of a CSV file. Default: a comma, or a tab for TSV.
        encoding: encoding of the text.
        bad_rows: action for a row that cannot be read: the run stops, or the row is skipped and
            counted.
        outliers: action for a number more than 10 standard deviations from its mean, in an input or
            the target. clip: it is moved to that bound. mask: it counts as missing. stop: it stops
            the run. auto: as clip, but a target that repeats such a number exactly, as a mark of
            missing values does, counts as missing. An input that is not a finite number counts as
            missing, or stops the run.
        categories: number of inputs of a categorical column, one of them for missing and unknown
            categories.
        words: number of inputs of a column of texts. Each word, in lower case and without
            punctuation, belongs to one of these inputs. With 0, texts are categories. Of a row, the
            512 words with the largest counts are learned.
        classes: maximum number of classes. A later class doubles the maximum, as far as memory
            allows. Default: 2 if the first rows have two, otherwise twice their number and at least
            16; 256 for a text.
        coverage: fraction of the numbers that prediction intervals should contain, at most 0.99.
        alarm: classes, each with a probability above which a row is marked in the predictions, as
            in "fault=0.2". The scores show which labels these marks would have caught.
        unusual: surprise above which a label is printed and counted as unusual, such as 3. The next
            200 labels of the same member give no further alarm. Default: no alarms.
        at_least: lower bound of predicted numbers and of the ends of their intervals, such as 0 for
            counts. Default: none.
        model: experts or network that learn. The options after `experts` belong to the recurrent
            network.
        log_every: number of rows between lines of metrics.
        checkpoint_every: number of rows between checkpoints. Unsaved rows are also saved a minute
            after the last checkpoint.

    Raises:
        TypeError: the source is not a path.
        ValueError: a number is out of range, or a column has two roles.
    """

    source: Positional[str]
    target: str | None = None
    task: Task = "auto"
    horizon: int = 0
    known: tuple[str, ...] = ()
    delay: int = 0
    previous: bool = True
    member: str | None = None
    members: int = 64
    reset: str | None = None
    id: str | None = None
    waiting: int = 0
    keep: str | None = None
    predictions: str | None = None
    journal: str | None = None
    like: str | None = None
    numeric: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    time: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    expert_column: tuple[str, ...] = ()
    format: Format = "auto"
    delimiter: str | None = None
    encoding: Encoding = "utf-8"
    bad_rows: BadRows = "stop"
    outliers: Outliers = "auto"
    categories: int = 16
    words: int = WORDS
    classes: int | None = None
    coverage: float = 0.9
    alarm: tuple[str, ...] = ()
    unusual: float | None = None
    at_least: float | None = None
    model: tyro.conf.OmitArgPrefixes[ModelConfig] = ModelConfig()
    log_every: int = 1000
    checkpoint_every: int = 10_000

    def __post_init__(self) -> None:
        self._check_source()
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}")
        for name, most in MOST.items():
            if (value := getattr(self, name)) is not None and value > most:
                raise ValueError(
                    f"{name}={value} must be at most {most}: what it counts is kept in memory"
                )
        check_coverage(self.coverage)
        if self.unusual is not None and not self.unusual > 0:
            raise ValueError(
                f"unusual={self.unusual}, expected a surprise above 0, such as 3: about one label "
                "in 1,000 is that unusual by chance"
            )
        check_at_least(self.at_least)
        self._check_columns()
        self._check_waiting()
        self._check_predictions()

    def _check_source(self) -> None:
        if self.source is tyro.MISSING_NONPROP:  # the command line will still ask for it
            return
        if not isinstance(self.source, str | os.PathLike):
            raise TypeError(
                f"source is a {type(self.source).__name__}, expected the path of a file, or - for "
                "standard input; a frame of pandas goes to ft.stream.run(frame, target=…), single "
                "rows to ft.stream.Classifier and Regressor, a series to ft.stream.SktimeForecaster"
            )
        object.__setattr__(self, "source", os.fspath(self.source))
        if self.topic is not None:
            self._check_topic()
        if self.journal is not None and self.source != STDIN:
            raise ValueError(
                f"journal={self.journal!r} is for standard input, and the source is the file "
                f"{self.source!r}, which can be read again without one"
            )

    def _check_topic(self) -> None:
        """Check the options for a topic of Kafka, which has no first rows and no end."""
        if self.like is None:
            raise ValueError(
                f"source={self.source!r} needs --like SAMPLE, a file whose rows decide the kinds "
                "of the columns: partitions must agree on them before the first message"
            )
        others = {"--known": self.known, "--outliers stop": self.outliers == "stop"}
        others |= {f"--format {self.format}": self.format not in ("auto", "jsonl")}
        if given := [name for name, value in others.items() if value]:
            raise ValueError(
                f"source={self.source!r} beside {given[0]}: messages are JSON objects, and come "
                "one by one without an end; leave it out"
            )

    def _check_columns(self) -> None:
        fields = ("known", "numeric", "categorical", "time", "text", "ignore", "alarm")
        for field in (*fields, "expert_column"):
            if isinstance(value := getattr(self, field), str):
                raise ValueError(f"{field}={value!r} must be a tuple of names, as ({value!r},)")
            object.__setattr__(self, field, tuple(value))  # JSON has lists
        if self.expert_column and (self.horizon or self.target is None):
            raise ValueError(
                f"expert_column={self.expert_column} holds predictions of the target of its own "
                "row: name a --target, and leave out --horizon"
            )
        _ = self.alarms  # raises an error for a wrong alarm
        if self.text and not self.words:
            raise ValueError(f"text={self.text}: words=0 leaves no input for texts; raise --words")
        for name, form in self.time_formats.items():
            check_date_format(form, f"time={name}={form}")
        target = () if self.target is None else (self.target,)
        named = [*target, *self.roles, *self.columns_of_given_kind, *self.unlagged]
        if twice := [name for name in named if named.count(name) > 1]:
            raise ValueError(
                f"column {twice[0]!r} has two roles: name it once, as --target, --member, --reset, "
                "--id, --known, --numeric, --categorical, --time, --text, --ignore or "
                "--expert-column; --task says whether the target is a number"
            )
        if self.known and not self.horizon:
            raise ValueError(
                f"known={self.known} needs a --horizon: values of the next rows are for forecasts"
            )

    def _check_waiting(self) -> None:
        _ = self.keep_seconds  # raises an error for a wrong time
        if not self.waiting:
            if self.keep is not None:
                raise ValueError(f"keep={self.keep!r} needs --waiting: no row waits for a label")
            return
        if self.id is None:
            raise ValueError(f"waiting={self.waiting} needs --id, the column of the rows' names")
        others = {"--horizon": self.horizon, "--delay": self.delay}
        others |= {"--outliers stop": self.outliers == "stop"}
        if given := [name for name, value in others.items() if value]:
            raise ValueError(
                f"waiting={self.waiting} beside {given[0]}: labels come by their ids, one by one; "
                "leave one of them out"
            )

    def _check_predictions(self) -> None:
        if self.predictions is None:
            return
        object.__setattr__(self, "predictions", os.fspath(self.predictions))
        to_topic = topic_in(self.predictions, "predictions") is not None
        if to_topic != (self.topic is not None):
            raise ValueError(
                f"predictions={self.predictions!r} of source={self.source!r}: predictions for a "
                "topic of Kafka go to another one, kafka://HOST:PORT/TOPIC, and all others to a "
                "file or to standard output"
            )
        if not to_topic and self.predictions != STDOUT:
            check_lines_of(Path(self.predictions), "predictions")

    @property
    def topic(self) -> Topic | None:
        """The topic of Kafka that is the source; None if the source is a file."""
        return topic_in(self.source, "source") if isinstance(self.source, str) else None

    @property
    def chunk(self) -> int:
        """Number of rows that are learned in one call.

        The rows of a live source are learned one by one, but not for the size `fast`.
        """
        if self.waiting or self.outliers == "stop":
            return 1
        path = Path(self.source)
        live = self.topic is not None or self.source == STDIN
        live |= path.exists() and not path.is_file()  # a named pipe or a device
        return 1 if live and self.model.size != "fast" else CHUNK

    @property
    def keep_seconds(self) -> float | None:
        """Longest time that a row waits for its label, in seconds; None for no limit."""
        if self.keep is None:
            return None
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", self.keep)
        if found is None or not float(found[1]):
            raise ValueError(f"keep={self.keep!r}, expected a time such as 90m, 12h or 7d")
        return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]

    @property
    def has_members(self) -> bool:
        """Whether rows belong to members; a stream with episodes has one, which starts anew."""
        return self.member is not None or self.reset is not None

    @property
    def roles(self) -> list[str]:
        """Columns that are neither inputs nor the target, such as the column of the member."""
        named = (self.member, self.reset, self.id, *self.expert_column)
        return [name for name in named if name is not None]

    @property
    def alarms(self) -> dict[str, float]:
        """For each class with an alarm, the probability above which a row is marked."""
        found: dict[str, float] = {}
        for one in self.alarm:
            name, _, least = one.rpartition("=")
            if not name or name in found or not 0 < (as_number(least) or 0) < 1:
                raise ValueError(
                    f"alarm={one!r}, expected CLASS=PROBABILITY, once for each class, with a "
                    "probability between 0 and 1, as in fault=0.2"
                )
            found[name] = float(least)
        return found

    @property
    def columns_of_given_kind(self) -> tuple[str, ...]:
        """Columns whose kind is given by an option."""
        times = tuple(_named(column)[0] for column in self.time)
        return self.known + self.numeric + self.categorical + times + self.text + self.ignore

    @property
    def ahead(self) -> Ahead | None:
        """Reader of the values that are known in advance; None if there are no such columns."""
        if not self.known:
            return None
        members = 1 if self.member is None else self.members
        known, ahead, member = self.known, self.horizon, self.member
        return Ahead(known, ahead, member, target=self.target, members=members)

    @property
    def unlagged(self) -> tuple[str, ...]:
        """Columns that contain values of the next rows."""
        ahead = self.ahead
        return () if ahead is None else tuple(ahead.places)

    @property
    def kinds(self) -> dict[str, Kind | None]:
        """Kind of each column that an option names.

        The kind is None for columns to ignore and for `roles`.
        """
        times = [_named(column)[0] for column in self.time]
        given: dict[str, Kind | None] = dict.fromkeys((*self.ignore, *self.roles))
        given |= dict.fromkeys((*self.numeric, *self.known, *self.unlagged), "numeric")
        given |= dict.fromkeys(self.categorical, "categorical")
        given |= dict.fromkeys(self.text, "text")
        return given | dict.fromkeys(times, "time")

    @property
    def time_formats(self) -> dict[str, str]:
        """Given format of each column of times that has one."""
        named = map(_named, self.time)
        return {name: form for name, form in named if form is not None}


def _named(column: str) -> tuple[str, str | None]:
    """Return name and format of a column of times, NAME or NAME=FORMAT.

    The name ends at the first "=", because a format may contain further ones.

    >>> _named("opened=%d.%m.%Y"), _named("day=d=%d"), _named("a=b")
    (('opened', '%d.%m.%Y'), ('day', 'd=%d'), ('a=b', None))
    """
    name, _, form = column.partition("=")
    return (name, form) if name and ("%" in form or form == UNIX) else (column, None)


def check_lines_of(path: Path, name: str) -> None:
    """Check that the name of a file of predictions indicates its format.

    Raises:
        ValueError: the name does not indicate a format.
    """
    if path.suffix.lower() not in LINE_FORMATS:
        raise ValueError(
            f"{name}={str(path)!r}, expected a file NAME.csv, or NAME.jsonl for JSON lines"
        )
