"""Partitions without a broker: assigned, revoked, lost, with messages that are no rows."""

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, TopicPartition
from services import sample

from foretrace._runs.checkpoint import read_extra
from foretrace._runs.progress import ProgressBar
from foretrace._runs.signals import Stop
from foretrace.cli import main
from foretrace.stream.model.model_config import ModelConfig
from foretrace.stream.runs.config import StreamConfig
from foretrace.stream.runs.report import records_in
from foretrace.stream.runs.saved import part_in
from foretrace.stream.serve import group as group_of_runs
from foretrace.stream.serve.group import Group
from foretrace.stream.serve.kafka import properties


class Message(NamedTuple):
    number: int
    place: int
    data: Any
    problem: Any = None

    def partition(self):
        return self.number

    def offset(self):
        return self.place

    def value(self):
        return self.data

    def key(self):
        return b"key"

    def error(self):
        return self.problem


class Topic:
    """Messages of two partitions, and a consumer that reads them as the test says."""

    def __init__(self, options=None):
        self.first, self.at = 0, {}

    def subscribe(self, topics, on_assign, on_revoke, on_lost):
        self.assigned, self.revoked, self.lost = (
            lambda *numbers, call=call: call(self, [TopicPartition("rows", n) for n in numbers])
            for call in (on_assign, on_revoke, on_lost)
        )

    def assign(self, given):
        self.at = {one.partition: max(0, one.offset) for one in given}

    def consume(self, count, seconds):
        found, self.next = self.next, []
        return found

    def get_watermark_offsets(self, *_, **__):
        return self.first, 999

    def seek(self, place):
        self.at[place.partition] = place.offset

    def commit(self, **_):
        """Do nothing: progress is in the checkpoints."""

    close = commit


@pytest.fixture
def join(tmp_path, monkeypatch, capsys):
    """Return a function that puts a process into the group; it answers into a dictionary."""
    monkeypatch.setattr(group_of_runs, "check_topic", lambda *_: None)
    monkeypatch.setattr(confluent_kafka, "Consumer", Topic)

    with Stop() as stop, contextlib.ExitStack() as stack:

        def process(answers, folder="run", **options):
            model = ModelConfig(experts=("lags",), size=options.pop("size", "auto"))
            options = {"target": "y", "member": "who", "model": model, **options}
            config = StreamConfig("kafka://h:1/rows", like=str(sample(tmp_path)), **options)
            group = Group(config, tmp_path / folder, ({}, {}), stop, ProgressBar(True), stack)

            class Sender:
                def __call__(self, key, found):
                    place = found["partition"], found["offset"]
                    assert answers.setdefault(place, found) == found

                def flush(self):
                    """All are there."""

            group.sender = Sender()
            stack.callback(lambda: group.leave(group.parts))
            return group

        yield process


ROWS = [{"who": f"m{i % 3}", "a": i % 7, "c": "uv"[i % 2], "y": 0.5 * (i % 7)} for i in range(90)]


def give(group, number, first, last, rows=ROWS):
    """Let a process read some messages of a partition."""
    rows = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in rows]
    group.consumer.next = [Message(number, i, rows[i]) for i in range(first, last)]
    group.turn()


@pytest.mark.parametrize("size", ["auto", "fast"])
def test_who_has_a_partition_repeats_what_another_process_said_bit_for_bit(join, size):
    whole, answers = {}, {}
    alone = join(whole, "alone", size=size)
    alone.consumer.assigned(0, 1)
    for number in (0, 1):
        give(alone, number, 0, 90)
    one, two = (join(answers, size=size, checkpoint_every=10) for _ in "ab")
    one.consumer.assigned(0, 1)
    give(one, 0, 0, 41)
    give(one, 1, 0, 25)
    give(one, 1, 20, 30)  # fetched twice
    one.consumer.revoked(1)
    two.consumer.assigned(1)
    assert two.consumer.at == {1: 30} and [*one.parts] == [0]
    give(two, 1, 30, 90)
    give(one, 0, 41, 60)
    one.consumer.lost(0)  # nothing is saved: another process may be further
    two.consumer.revoked(1)
    two.consumer.assigned(0, 1)
    assert two.consumer.at == {0: 41, 1: 90}
    give(two, 0, 41, 90)
    assert answers == whole and len(whole) == 180
    two.leave([0])
    assert read_extra(two.path / "part-0" / "checkpoint.safetensors")["position"][2] == 90


def test_a_topic_that_grows_has_new_parts_and_the_others_go_on(join):
    whole, answers = {}, {}
    alone = join(whole, "alone")
    alone.consumer.assigned(0, 1, 2)
    for number in range(3):
        give(alone, number, 0, 60)
    one, two = join(answers), join(answers)
    one.consumer.assigned(0, 1)
    give(one, 0, 0, 30)
    give(one, 1, 0, 60)
    one.consumer.revoked(0, 1)
    one.consumer.assigned(0, 2)  # it has messages since before the group learned of it
    two.consumer.assigned(1)
    assert one.consumer.at == {0: 30, 2: 0} and two.consumer.at == {1: 60}
    give(one, 2, 0, 60)
    give(one, 0, 30, 60)
    assert answers == whole and len(whole) == 180


def test_the_clients_of_kafka_read_answer_and_go_on(tmp_path):
    mock, quiet = confluent_kafka.Producer({"test.mock.num.brokers": 1}), {"log_level": 0}
    (broker,) = mock.list_topics().brokers.values()
    source, read = f"kafka://{broker.host}:{broker.port}/rows", []
    options = {"target": "y", "member": "who", "model": ModelConfig(experts=("lags",))}
    options |= {"like": str(sample(tmp_path)), "predictions": source.replace("rows", "answers")}
    for begin in (0, 60):
        for i in range(begin, begin + 60):
            mock.produce("rows", json.dumps(ROWS[i % 90]), partition=i % 2)
        assert not mock.flush(30)
        with Stop() as stop, contextlib.ExitStack() as stack:
            config = StreamConfig(source, **options)
            show, clients = ProgressBar(False), (quiet, quiet)
            group = Group(config, tmp_path / "run", clients, stop, show, stack)
            while group.rows < 60:  # the second time it begins at the first one's checkpoints
                group.turn()
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "reader"}
    )
    reader.assign([TopicPartition("answers", one, 0) for one in range(4)])
    while len(read) < 120:
        read += [json.loads(one.value()) for one in reader.consume(120, 1) if not one.error()]
    reader.close()
    places = {(one["partition"], one["offset"]) for one in read}
    assert places == {(part, offset) for part in (0, 1) for offset in range(60)}


BAD = [b"no JSON", b"[1]", b"", b'{"who": "m1", "z": 1}', b'{"a": 1}', b'{"who": "m1", "a": "x"}']
BAD += [b'{"who": "m1", "a": [1]}', b'{"who": "m1", "a": NaN}', b"\xff", b"[" * 10**5, b" " * 2**21]


def test_messages_that_are_no_rows_are_counted_and_told_of_once(join, capsys):
    answers = {}
    group = join(answers)
    group.consumer.assigned(0)
    mixed = [*ROWS[:10], *BAD, *ROWS[10:20], *BAD[:1]]
    give(group, 0, 0, len(mixed), mixed)
    position = group.parts[0].part.position
    assert position[:4] == (20, len(mixed), len(mixed), len(BAD) + 1)
    assert [*answers] == [(0, i) for i in range(len(mixed)) if mixed[i] not in BAD]
    group.leave([0])
    assert capsys.readouterr().err.count("is skipped") == 1
    group.consumer.assigned(0)
    assert group.parts[0].part.position == position


def test_a_report_adds_the_parts_up_and_a_check_looks_at_each(join, capsys):
    group = join({}, log_every=20)
    group.consumer.assigned(0, 1, 2)
    give(group, 0, 0, 60)
    give(group, 1, 60, 90)
    group.leave([0, 1])
    one, two = (records_in(part_in(group.path, n))[1][-1] for n in (0, 1))
    assert main(["report", str(group.path)]) == 0 and main(["check", str(group.path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    _, (both,) = records_in(group.path)
    mean = (one["mae"] * one["scored"] + two["mae"] * two["scored"]) / both["scored"]
    assert both["scored"] == one["scored"] + two["scored"] and both["step"] == 90
    assert both["mae"] == pytest.approx(mean, rel=1e-12)
    assert "2 partitions, whose scores" in out and f"Each of {both['scored']} rows" in out
    assert "part-2/checkpoint.safetensors: whole" in out


REFUSED = [
    ("kafka://h:1/rows --target y --run-dir R", "needs --like"),
    ("kafka://user:secret@h:1/rows --target y --like L --run-dir R", "an address with @"),
    ("kafka://h:1 --target y --like L --run-dir R", "expected kafka://HOST:PORT/TOPIC"),
    ("kafka://h:1/rows/3 --target y --like L --run-dir R", "expected a topic"),
    ("kafka://h:1/rows --target y --like L", "--run-dir"),
    ("kafka://h:1/rows --target y --like L --run-dir R --rows 3", "--rows is not for"),
    ("kafka://h:1/rows --target y --like L --run-dir R --outliers stop", "beside --outliers stop"),
    ("kafka://h:1/rows --target y --like L --run-dir R --predictions p.csv", "go to another one"),
    ("kafka://h:1/rows --target offset --like L --run-dir R", "'offset'"),
    ("kafka://h:1/rows --target y --like L --run-dir R --kafka-config F", "line 2: expected NAME"),
    ("rows.csv --target y --metrics-port 1", "--metrics-port is not for"),
    ("rows.csv --target y --predictions kafka://h:1/p", "go to another one"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED)
def test_options_that_do_not_fit_a_topic_are_refused(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("F").write_text("sasl.username=me\nsecret\n")
    assert main(["stream", *words.split()]) == 2
    err = capsys.readouterr().err
    assert said in err and "secret" not in err and [*tmp_path.iterdir()] == [tmp_path / "F"]


def test_properties_are_for_both_clients_or_for_one(tmp_path):
    path = tmp_path / "kafka.properties"
    path.write_text("# ours\nssl.ca.location = a=b\n\nconsumer.client.rack=r\nproducer.acks = 1\n")
    both = {"ssl.ca.location": "a=b"}
    assert properties(path) == (both | {"client.rack": "r"}, both | {"acks": "1"})
    path.write_text("consumer.enable.auto.commit=true")
    with pytest.raises(ValueError, match="decided by the checkpoints"):
        properties(path)


def test_messages_that_the_topic_forgot_are_told_of_and_another_topic_is_refused(join, capsys):
    group = join({})
    group.consumer.assigned(0)
    give(group, 0, 0, 9)
    gone = Message(0, 0, None, KafkaError(KafkaError._AUTO_OFFSET_RESET))
    group.consumer.first, group.consumer.next = 20, [gone]
    group.turn()
    assert group.consumer.at == {0: 20} and group.parts[0].part.position.offset == 20
    assert "offset 9 to 19 before they were read" in capsys.readouterr().err
    group.consumer.first, group.consumer.next = 0, [gone]
    with pytest.raises(ValueError, match="made anew"):
        group.turn()
