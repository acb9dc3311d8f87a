"""The clients of Kafka: their properties, a producer of predictions, and checks of topics."""

import json
import os
from pathlib import Path
from typing import Any

from foretrace.stream.read.topic import Topic

PATIENCE = 30.0
"""Seconds to wait for an answer from the brokers."""

_PAUSE = 0.1
"""Seconds to wait while too many predictions have not been delivered."""

_OWN = {
    "bootstrap.servers": "the address of the topic",
    "enable.auto.commit": "the checkpoints",
    "enable.auto.offset.store": "the checkpoints",
    "auto.offset.reset": "the checkpoints",
    "partition.assignment.strategy": "the parts, whose files one process has",
    "enable.idempotence": "the predictions, each of which is delivered",
}
"""Properties that the user's file may not set, and what sets them instead."""


def properties(path: str | os.PathLike[str] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the properties in a file, for the consumer and for the producer.

    A line is NAME=VALUE, with a name of librdkafka such as sasl.password. A name that begins with
    `consumer.` or `producer.` is only for this client.

    Raises:
        ValueError: the file cannot be read, or a line is wrong. The error does not contain the
            value.
    """
    both: dict[str, dict[str, Any]] = {"consumer": {}, "producer": {}}
    try:
        lines = [] if path is None else Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"kafka_config={str(path)!r} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, is_given, value = (one.strip() for one in line.partition("="))
        kind, _, rest = name.partition(".")
        place = f"kafka_config={str(path)!r}, line {number}"
        if not (name and is_given):
            raise ValueError(f"{place}: expected NAME=VALUE, as in security.protocol=SASL_SSL")
        name = rest if kind in both else name
        if name in _OWN:
            raise ValueError(f"{place}: {name} is decided by {_OWN[name]}; leave it out")
        for one in (kind,) if kind in both else both:
            both[one][name] = value
    return both["consumer"], both["producer"]


class Sender:
    """Producer of predictions for a topic.

    Args:
        topic: the topic.
        options: properties of the producer.
    """

    def __init__(self, topic: Topic, options: dict[str, Any]):
        from confluent_kafka import Producer

        check_topic(topic, options)
        own = {"bootstrap.servers": topic.servers, "enable.idempotence": True}
        self._producer, self._topic = Producer({"linger.ms": 5} | options | own), topic.name
        self._failed: Any = None

    def __call__(self, key: bytes | None, found: dict[str, Any]) -> None:
        """Send a prediction. Wait while too many predictions have not been delivered."""
        value = json.dumps(found, default=str)
        while True:
            try:
                self._producer.produce(self._topic, value, key, on_delivery=self._delivered)
                break
            except BufferError:
                self._producer.poll(_PAUSE)
        self._producer.poll(0)

    def _delivered(self, error: Any, message: Any) -> None:
        self._failed = self._failed or error

    def flush(self) -> None:
        """Wait until all predictions are delivered.

        Raises:
            OSError: some predictions cannot be delivered. They are sent again from the last
                checkpoint.
        """
        left = self._producer.flush(PATIENCE)
        if left or self._failed:
            raise OSError(
                f"predictions are not delivered to the topic {self._topic!r} "
                f"({self._failed or f'{left} wait'}); the next start repeats them"
            )


def check_topic(topic: Topic, options: dict[str, Any]) -> None:
    """Check that a topic exists.

    Args:
        topic: topic to look for.
        options: properties of a client.

    Raises:
        ValueError: the topic does not exist, or a property is wrong.
        OSError: no broker answers.
    """
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    try:
        client = AdminClient(options | {"bootstrap.servers": topic.servers})
    except KafkaException as error:
        raise ValueError(f"kafka_config: {error.args[0].str()}") from error
    try:
        found = client.list_topics(topic.name, timeout=PATIENCE).topics[topic.name]
    except KafkaException as error:
        raise OSError(f"no broker answers at {topic.servers}: {error.args[0].str()}") from error
    if found.error is not None:
        raise ValueError(f"{topic} cannot be used: {found.error.str()}")
