"""A consumer group of Kafka: any number of processes share the partitions of a topic.

    messages -> their partitions -> learned -> predictions -> delivered -> checkpoints with offsets

Kafka assigns the partitions to processes, and notices processes that have ended. The run
directories of the partitions are in one folder, to which all processes have access.
"""

import contextlib
import dataclasses
import importlib
import os
import time
import uuid
from functools import partial
from pathlib import Path
from typing import Any, cast

from foretrace._runs import shared
from foretrace._runs.config_json import from_json, to_json
from foretrace._runs.directory import read_begun
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Stop
from foretrace.stream.read.topic import topic_in
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.opening import plan_like
from foretrace.stream.runs.plan import Plan
from foretrace.stream.runs.saved import KIND, part_in
from foretrace.stream.serve.kafka import PATIENCE, Sender, check_topic, properties
from foretrace.stream.serve.partition import PLACE, Partition, Voice

_BATCH = 256
"""Maximum number of messages that are read at once."""

_PAUSE = 0.1
"""Seconds to wait for messages before checking whether to stop or to save."""


class Group:
    """A process in its group.

    Args:
        config: configuration of the stream, whose source is a topic.
        run_dir: folder of the group.
        options: properties of the consumer and of the producer.
        stop: stop request.
        show: progress bar.
        stack: resources that are closed at the end.
    """

    def __init__(
        self,
        config: StreamConfig,
        run_dir: Path,
        options: tuple[dict[str, Any], dict[str, Any]],
        stop: Stop,
        show: ProgressBar,
        stack: contextlib.ExitStack,
    ):
        from confluent_kafka import Consumer

        assert config.topic is not None
        self.config, self.topic = config, config.topic
        self.stop, self.show = stop, show
        check_topic(self.topic, options[1])
        to_topic = topic_in(config.predictions or "", "predictions")
        self.sender = None if to_topic is None else Sender(to_topic, options[1])
        run = shared.joined(KIND, config, run_dir, partial(_begun, config, run_dir))
        self.plan = from_json(Plan, read_begun(run, "plan"))
        self.path, self.parts, self.rows = run_dir, dict[int, Partition](), 0
        self.seen: dict[tuple[int, ...], dict[str, float]] = {}
        self._said: set[str] = set()
        self._looked = 0.0
        all_options: dict[str, Any] = {
            "group.id": read_begun(run, "group"),
            "group.instance.id": shared.place(run_dir, stack),
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 2_000,
            **options[0],
            "bootstrap.servers": self.topic.servers,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "partition.assignment.strategy": "range",
        }
        if not all_options["group.instance.id"]:  # a process that stops is replaced at once
            del all_options["group.instance.id"]
        self.consumer = Consumer(all_options)
        stack.callback(self.consumer.close)
        show.say(f"joining the group {all_options['group.id']}")
        self.consumer.subscribe(
            [self.topic.name],
            on_assign=self._assigned,
            on_revoke=lambda _, taken: self.leave(one.partition for one in taken),
            on_lost=self._lost,
        )

    def _assigned(self, consumer: Any, given: list[Any]) -> None:
        from confluent_kafka import OFFSET_BEGINNING

        for one in given:
            part = self.parts[one.partition] = self._opened(one.partition)
            one.offset = part.part.position.offset or OFFSET_BEGINNING
        consumer.assign(given)
        self.show.say(f"partitions {sorted(self.parts)} are here")

    def _opened(self, number: int) -> Partition:
        """Return a partition in the state of its checkpoint."""
        topic = self.topic._replace(partition=number)
        config = dataclasses.replace(self.config, source=str(topic), predictions=None)
        show: Any = Voice(self.show, number, self._said)

        def program(session: Any) -> Partition:
            return Partition(session, self.plan, self.sender, partial(self._commit, number))

        path = part_in(self.path, number)
        return cast(Partition, shared.started(KIND, config, path, program, self.stop, show))

    def leave(self, numbers: Any) -> None:
        """Save and drop partitions that are assigned to other processes or to none."""
        for number in [*numbers]:
            if (part := self.parts.pop(number, None)) is not None:
                try:
                    part.leave()
                except OSError as error:  # the next owner begins at the last checkpoint
                    self.show.say(f"warning: partition {number} is not saved: {error}")
                finally:
                    part.close()

    def _lost(self, consumer: Any, taken: list[Any]) -> None:
        """Drop partitions that other processes may already have."""
        for one in taken:
            if (part := self.parts.pop(one.partition, None)) is not None:
                part.close()
        self.show.say(f"warning: partitions {[one.partition for one in taken]} are lost")

    def _commit(self, number: int, offset: int) -> None:
        """Send an offset to the brokers, which only tools read: the checkpoint has the progress."""
        from confluent_kafka import KafkaException, TopicPartition

        place = TopicPartition(self.topic.name, number, offset)
        with contextlib.suppress(KafkaException):  # the group continues without this process
            self.consumer.commit(offsets=[place], asynchronous=True)

    def turn(self) -> None:
        """Wait for messages, save partitions that are due, and learn.

        Raises:
            OSError: a file cannot be written, or predictions are not delivered.
            ValueError: the topic is not the topic that was read before.
            DivergenceError: too many consecutive steps were refused.
        """
        messages = self.consumer.consume(_BATCH, _PAUSE)
        # A process that was suspended for long learns here, before it saves, which partitions it
        # has lost.
        for part in self.parts.values():
            part.save_if_due()
        batches: dict[Any, list[Any]] = {}
        for message in messages:
            number = message.partition()
            if (error := message.error()) is not None:
                self._failed(error, number)
            elif number in self.parts:
                batches.setdefault(number, []).append(message)
        for number, batch in batches.items():
            before = self.parts[number].step
            self.parts[number].take(batch)
            self.rows += self.parts[number].step - before
        if time.monotonic() > self._looked + 1:
            self._look()

    def _failed(self, error: Any, number: Any) -> None:
        """Continue after an error of the client, unless the error is fatal.

        Raises:
            OSError: this process cannot remain in the group.
            ValueError: the topic is not the topic that was read before.
        """
        from confluent_kafka import KafkaError, TopicPartition

        if error.fatal():
            raise OSError(f"{self.topic}: {error.str()}")
        if error.code() != KafkaError._AUTO_OFFSET_RESET or number not in self.parts:
            Voice(self.show, number, self._said).say(f"warning: {error.str()}")
            return
        part, place = self.parts[number].part, TopicPartition(self.topic.name, number)
        offset = part.position.offset
        first, _ = self.consumer.get_watermark_offsets(place, PATIENCE)
        if first <= offset:
            raise ValueError(
                f"{self.topic} has no offset {offset} in partition {number}, up to which it was "
                "read: it was made anew; begin a new run in another --run-dir"
            )
        self.show.say(
            f"warning: partition {number}: the topic forgot the messages from offset {offset} to "
            f"{first - 1} before they were read; raise its retention"
        )
        part.position = part.position._replace(offset=first)
        place.offset = first
        self.consumer.seek(place)

    def _look(self) -> None:
        """Store the present numbers of each partition, and show their sums."""
        from confluent_kafka import TopicPartition

        now = self._looked = time.monotonic()
        seen: dict[tuple[int, ...], dict[str, float]] = {}
        for number, part in self.parts.items():
            place = TopicPartition(self.topic.name, number)
            _, end = self.consumer.get_watermark_offsets(place, cached=True)
            position = part.part.position
            seen[number,] = {
                "rows": position.row,
                "bad_rows": position.bad,
                "waiting": len(part.intake.room),
                "lag": max(0, end - position.offset),
                "checkpoint_age_seconds": now - part.saved_at,
            }
        self.seen = seen  # at once: another thread reads it
        lag = sum(one["lag"] for one in seen.values())
        self.show.reach(
            self.rows, f"{self.rows} rows of {len(seen)} partitions; {lag:.0f} messages to read"
        )


def _begun(config: StreamConfig, path: Path) -> dict[str, Any]:
    """Return the values that the first process records: the plan, and the name of the group."""
    name = f"foretrace-{path.resolve().name}-{uuid.uuid4().hex[:8]}"
    return {"plan": to_json(plan_like(config, grows=True)), "group": name}


def join(
    config: StreamConfig,
    run_dir: str | os.PathLike[str],
    *,
    kafka_config: str | os.PathLike[str] | None = None,
    metrics_port: str | None = None,
) -> int:
    """Learn from the partitions that the group assigns to this process, until Ctrl-C or SIGTERM.

    Args:
        config: configuration of the stream, whose source is a topic.
        run_dir: folder that all processes of the group share.
        kafka_config: file with properties of the client, such as its credentials.
        metrics_port: port, or HOST:PORT, at which numbers for Prometheus are served.

    Returns:
        The number of rows and labels that this process learned.

    Raises:
        ValueError: the options, the file `like`, the properties or the topic cannot be used, or the
            extra `kafka` is not installed.
        OSError: no broker answers, predictions are not delivered, or a file cannot be written.
        DivergenceError: too many consecutive steps were refused.
    """
    try:
        for name in ("confluent_kafka", "prometheus_client"):
            importlib.import_module(name)
    except ImportError as error:
        raise ValueError(
            f"source={config.source!r} needs {error.name}: pip install 'foretrace[kafka]'"
        ) from error
    topic, named = config.topic, (config.target, config.member, config.id)
    if topic is None or topic.partition is not None:
        raise ValueError(f"source={config.source!r}, expected a topic, kafka://HOST:PORT/TOPIC")
    if taken := {*PLACE} & {*named}:
        raise ValueError(f"column {taken.pop()!r}: predictions have this name; give it another one")
    options = properties(kafka_config)
    with Stop() as stop, contextlib.ExitStack() as stack:
        show = stack.enter_context(ProgressBar(True))
        group = Group(config, Path(run_dir), options, stop, show, stack)
        stack.callback(lambda: group.leave(group.parts))
        if metrics_port is not None:
            from foretrace.stream.serve.gauges import expose

            show.say(f"metrics at {expose(lambda: group.seen, metrics_port, stack)}")
        while not stop.asked:
            group.turn()
    return group.rows
