"""A partition of a topic: a part of the stream that has its own run directory.

The checkpoint contains the offset of the next message, and the state at an offset is a function of
the messages before it. A process that takes over the partition begins at a checkpoint, and repeats
the predictions after it, bit for bit. Therefore neither locks nor transactions are needed.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

from foretrace._runs.follow import Session
from foretrace._runs.progress import ProgressBar
from foretrace.stream.read.lines import MAX_LINE, Position, Row
from foretrace.stream.read.source import Source
from foretrace.stream.runs.plan import Plan, Rows
from foretrace.stream.runs.run import Learning
from foretrace.stream.runs.saved import StreamSaved
from foretrace.stream.serve.desk import Checks, Refusal, parsed
from foretrace.stream.serve.kafka import Sender

PLACE = ("partition", "offset")
"""Names of a row's position in the topic, which each prediction contains."""


class Voice:
    """Output of the messages of a partition. A line that was printed before is not repeated.

    Args:
        show: progress bar of the process.
        number: number of the partition.
        said: lines that any partition of the process has printed.
    """

    def __init__(self, show: ProgressBar, number: int, said: set[str]):
        self._show, self._number, self._said = show, number, said

    def say(self, text: str) -> None:
        """Print a line."""
        if text not in self._said:
            self._said.add(text)
            self._show.say(f"partition {self._number}: {text}")

    def reach(self, step: int, text: str) -> None:
        """Show nothing, because the process shows the rows of all its partitions."""

    def compiling(self) -> None:
        """Report once that the next step is being compiled."""
        self.say("compiling …")


class Partition(Learning):
    """The run of one partition, which receives the messages that the group reads.

    Args:
        session: the open run.
        plan: plan of the group.
        sender: producer of predictions; None if predictions are not sent.
        commit: function that is called with the offset of each checkpoint.
    """

    save_seconds = 10.0
    alone = False  # a stopped process would keep the lock

    def __init__(
        self,
        session: Session,
        plan: Plan,
        sender: Sender | None,
        commit: Callable[[int], None],
    ):
        super().__init__(session, on_prediction=None if sender is None else self._predicted)
        self._plan, self._sender, self._commit = plan, sender, commit
        self.saved_at = time.monotonic()
        self._asked: dict[int, Any] = {}
        self._told = False

    def opened(self) -> Source:
        """Return the source, whose messages the group reads."""
        return Source(self.config.source, "jsonl", times=self.config.time_formats)

    def rows_from(self, saved: StreamSaved) -> tuple[Plan, Rows, list[str]]:
        """Return the plan of the group. Messages are passed to `take`."""
        return saved.plan or self._plan, iter(()), []

    def begun(self) -> None:
        """Report columns and target, and prepare the checks of messages."""
        super().begun()
        self.checks = Checks(self.config, self.intake)

    def take(self, messages: Sequence[Any]) -> None:
        """Learn from the next messages of the partition. A refused message is counted."""
        size = self.intake.chunk
        for first in range(0, len(messages), size):
            chunk = messages[first : first + size]
            try:
                self._take(chunk)
            except ValueError:  # one of them is refused: which one?
                for message in chunk if self.is_whole else ():
                    self._take_or_skip(message)
                if not self.is_whole:
                    raise

    def _take(self, messages: Sequence[Any]) -> None:
        self.intake.parts.end("records")
        position, before, items = self.part.position, self.step, []
        self._asked = {}
        for message in messages:
            if message.offset() < position.offset:
                continue  # it was fetched before a rebalance, and has been read already
            row, position = self._read(message, position)
            if row is not None:
                items.append(self.source.dated((row, position)))
                self._asked[position.row] = message
        self.intake.parts.end("reading")
        if items:
            self.chunk = items
            try:
                self._learn()
            finally:
                self.chunk = []
        self.part.position = position  # also after messages that are no rows
        if self.step // self.config.log_every > before // self.config.log_every:
            self._report()

    def _read(self, message: Any, position: Position) -> tuple[Row | None, Position]:
        """Return the row or the label in a message (None if it is neither), and its position."""
        value = message.value() or b""
        after = position._replace(line=position.line + 1, offset=message.offset() + 1)
        try:
            if len(value) > MAX_LINE:
                raise Refusal(413, f"{len(value)} bytes, more than {MAX_LINE}")
            row = dict(self.checks.line(parsed(value)).line)
        except Refusal as error:
            return None, self._skipped(after, error)
        return row, after._replace(row=position.row + 1)

    def _take_or_skip(self, message: Any) -> None:
        try:
            self._take([message])
        except ValueError as error:
            if self.is_whole:
                after = self.part.position._replace(offset=message.offset() + 1)
                self.part.position = self._skipped(after, error)

    def _skipped(self, after: Position, error: Exception) -> Position:
        """Count a message that is neither a row nor a label, and report the first one."""
        if not self._told:
            self._told = True
            self.session.show.say(
                f"warning: the message at offset {after.offset - 1} is skipped ({error}); such "
                "messages are counted as bad rows, and no other one is told of"
            )
        return after._replace(bad=after.bad + 1)

    def _predicted(self, found: dict[str, Any]) -> None:
        message = self._asked[found["row"]]
        place = dict(zip(PLACE, (message.partition(), message.offset()), strict=True))
        assert self._sender is not None
        self._sender(message.key(), place | found)

    def save(self) -> None:
        """Write a checkpoint after all predictions before it are delivered.

        Raises:
            OSError: a prediction is not delivered, or the file cannot be written.
        """
        if self._sender is not None:
            self._sender.flush()
        super().save()
        self.saved_at = time.monotonic()
        self._commit(self.part.position.offset)

    def leave(self) -> None:
        """Save the state, and record the scores so far, like a run that ends here."""
        if self.is_whole:
            self.save()
            if self.step:
                self.record("result", **self.result())

    def close(self) -> None:
        """Close the files."""
        self.session.stack.close()
