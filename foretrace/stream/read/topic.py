"""The address of a Kafka topic, kafka://HOST:PORT/TOPIC."""

import re
from typing import NamedTuple

_PREFIX = "kafka://"
_ADDRESS = re.compile(rf"{_PREFIX}([^/@\s]+)/([A-Za-z0-9._-]{{1,249}})(?:/(\d+))?")


class Topic(NamedTuple):
    """A topic, or one of its partitions.

    Args:
        servers: addresses of some brokers, separated by commas.
        name: name of the topic.
        partition: number of the partition. Default: the whole topic.
    """

    servers: str
    name: str
    partition: int | None = None

    def __str__(self) -> str:
        part = "" if self.partition is None else f"/{self.partition}"
        return f"{_PREFIX}{self.servers}/{self.name}{part}"


def topic_in(address: str, what: str) -> Topic | None:
    """Return the topic of an address; None for any other file name.

    >>> topic_in("kafka://localhost:9092/rows", "source")
    Topic(servers='localhost:9092', name='rows', partition=None)

    Args:
        address: the address.
        what: name of the option with the address.

    Raises:
        ValueError: an address of Kafka is incomplete, or contains credentials.
    """
    if not address.startswith(_PREFIX):
        return None
    found = _ADDRESS.fullmatch(address)
    if found is None:
        # The address is not repeated, because it may contain a password.
        shown = "an address with @" if "@" in address else repr(address)
        raise ValueError(
            f"{what}: {shown}, expected kafka://HOST:PORT/TOPIC; credentials belong into the file "
            "of --kafka-config"
        )
    servers, name, partition = found.groups()
    return Topic(servers, name, None if partition is None else int(partition))
