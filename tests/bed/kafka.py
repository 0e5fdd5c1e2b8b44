"""A real KRaft broker and what tests ask of it."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Callable, Iterable

from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from .artifacts import BROKER_VERSION, java, libraries
from .process import BedError, Process, free_port, listens, wait_until

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
num.partitions=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
message.max.bytes=10485760
auto.create.topics.enable=false
"""

LOG4J2 = """\
status=error
name=bed
appender.c.type=Console
appender.c.name=C
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=%d{HH:mm:ss,SSS} %p [%t] %c{1} %m%n
rootLogger.level=info
rootLogger.appenderRef.c.ref=C
"""

LOG4J1 = """\
log4j.rootLogger=INFO, C
log4j.appender.C=org.apache.log4j.ConsoleAppender
log4j.appender.C.layout=org.apache.log4j.PatternLayout
log4j.appender.C.layout.ConversionPattern=%d{HH:mm:ss,SSS} %p [%t] %c{1} %m%n
"""


def logging_options(folder: Path, version: str) -> list[str]:
    """Writes the logging configuration of a Kafka version and returns the options that name it."""
    folder.mkdir(parents=True, exist_ok=True)
    if version.startswith("3."):
        path = folder / "log4j.properties"
        path.write_text(LOG4J1)
        return [f"-Dlog4j.configuration=file:{path}"]
    path = folder / "log4j2.properties"
    path.write_text(LOG4J2)
    return [f"-Dlog4j2.configurationFile={path}"]


LOADING = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def _patiently(ask: Callable):
    """Asks again while a broker that has just started still loads its groups."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return ask()
        except KafkaException as refused:
            if time.monotonic() > deadline or refused.args[0].code() not in LOADING:
                raise
        time.sleep(0.25)


class Broker:
    """One broker and controller in one process, data in `folder`."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self.process = Process("broker", logs / "broker.log")
        self._admin: AdminClient | None = None
        self._classpath = f"{libraries(f'kafka-{BROKER_VERSION}')}/*"

    def start(self) -> Broker:
        """Formats the data folder on the first start, and waits until the broker serves."""
        self.folder.mkdir(parents=True, exist_ok=True)
        properties = self.folder / "server.properties"
        options = logging_options(self.folder, BROKER_VERSION)
        again = properties.exists()
        if not again:
            properties.write_text(
                PROPERTIES.format(
                    port=self.port, controller=free_port(), folder=self.folder
                )
            )
            # Any 16 bytes in URL-safe base64 name a cluster.
            command = [java(), "-Xmx128m", *options, "-cp", self._classpath]
            command += ["kafka.tools.StorageTool", "format", "-t", "YmVkLW9mLWZyYXppbC0wMQ"]
            done = subprocess.run(
                [*command, "-c", str(properties)], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise BedError(f"formatting failed:\n{done.stdout}{done.stderr}")
        self.process.start(
            [java(), "-Xmx768m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *options]
            + ["-cp", self._classpath, "kafka.Kafka", properties]
        )
        self.process.wait_ready(lambda: listens(self.port) and self._answers())
        if again:
            wait_until("the groups of the broker", self._has_groups, 60, 0.25)
        return self

    def _has_groups(self) -> bool:
        """Tells whether a broker that was started again has loaded its groups. The admin client must
        not be asked before: it crashes on the answer that it gets."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "bed", "log_level": 0}
        asks = Consumer(settings)
        try:
            asks.committed([TopicPartition("__consumer_offsets", 0)], timeout=5)
            return True
        except KafkaException as refused:
            if refused.args[0].code() in LOADING:
                return False
            raise
        finally:
            asks.close()

    def _answers(self) -> bool:
        try:
            return bool(self.admin.list_topics(timeout=2).brokers)
        except Exception:  # any client error means: not yet
            return False

    def stop(self) -> None:
        self.process.stop()

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, **config: str) -> None:
        topic = NewTopic(name, partitions, 1, config=config)
        for future in self.admin.create_topics([topic]).values():
            future.result(30)

    def add_partitions(self, name: str, count: int) -> None:
        """Gives a topic more partitions: `count` in all."""
        for future in self.admin.create_partitions([NewPartitions(name, count)]).values():
            future.result(30)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic and waits until its name is free."""
        for future in self.admin.delete_topics([name]).values():
            future.result(30)
        wait_until(f"{name} to go", lambda: name not in self.admin.list_topics(timeout=5).topics, 30)

    def produce(
        self, topic: str, records: Iterable[tuple[int, bytes | None, bytes | None]]
    ) -> list[int]:
        """Sends (partition, key, value) records and returns the next offset of each partition."""
        return self.produce_all((topic, *record, []) for record in records)

    def produce_all(
        self, records: Iterable[tuple[str, int, bytes | None, bytes | None, list[tuple[str, bytes]]]]
    ) -> list[int]:
        """Sends (topic, partition, key, value, headers) records, all topics by one producer; returns the
        next offset of each partition when there is one topic."""
        failures: list[str] = []
        ends: dict[int, int] = {}

        def delivered(error, message) -> None:
            if error is not None:
                failures.append(str(error))
            else:
                partition = message.partition()
                ends[partition] = max(ends.get(partition, 0), message.offset() + 1)

        producer = Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "linger.ms": 20,
                "batch.size": 262144,
                "compression.type": "lz4",
                "acks": "all",
                "message.max.bytes": 10_000_000,
                "queue.buffering.max.messages": 200000,
            }
        )
        for topic, partition, key, value, headers in records:
            while True:
                try:
                    producer.produce(
                        topic,
                        value,
                        key,
                        partition=partition,
                        headers=headers,
                        on_delivery=delivered,
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        left = producer.flush(120)
        if failures or left:
            raise BedError(f"{len(failures)} records refused, {left} unsent: {failures[:1]}")
        return [ends.get(partition, 0) for partition in range(max(ends, default=-1) + 1)]

    def produce_json(
        self, topic: str, values: Iterable[object], partition: Callable[[int], int] = lambda _: 0
    ) -> list[int]:
        """Sends values as JSON; `partition` picks the partition of the n-th."""
        return self.produce(
            topic,
            (
                (partition(index), None, json.dumps(value, separators=(",", ":")).encode())
                for index, value in enumerate(values)
            ),
        )

    def group_offsets(self, group: str) -> dict[tuple[str, int], int]:
        """Returns the offsets that a consumer group has committed."""

        def asked():
            listed = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
            return listed[group].result(30)

        found = _patiently(asked).topic_partitions
        return {(tp.topic, tp.partition): tp.offset for tp in found if tp.offset >= 0}

    def members(self, group: str) -> int:
        """Counts the members of a consumer group."""
        described = _patiently(
            lambda: self.admin.describe_consumer_groups([group])[group].result(30)
        )
        return len(described.members)

    def wait_group_offsets(
        self, group: str, expected: dict[tuple[str, int], int], timeout: float = 30
    ) -> None:
        """Waits until a group's offsets are exactly these. A deleted sink commits as it stops."""
        deadline = time.monotonic() + timeout
        while (found := self.group_offsets(group)) != expected:
            if time.monotonic() > deadline:
                raise AssertionError(f"the offsets of {group} are {found}, not {expected}")
            time.sleep(0.25)

    def count(self, topic: str) -> int:
        """Counts the records of a topic that nothing was deleted from."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "bed-count"}
        consumer = Consumer(settings)
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            ends = (
                consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)[1]
                for partition in partitions
            )
            return sum(ends)
        finally:
            consumer.close()

    def read(self, topic: str, count: int, timeout: float = 30) -> list:
        """Reads the first `count` messages of a topic, all partitions, as far as they are there."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap, "group.id": f"bed-read-{time.time_ns()}"}
        )
        try:
            partitions = consumer.list_topics(topic, 10).topics[topic].partitions
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            messages: list = []
            deadline = time.monotonic() + timeout
            while len(messages) < count and time.monotonic() < deadline:
                message = consumer.poll(0.5)
                if message is not None and message.error() is None:
                    messages.append(message)
            return messages
        finally:
            consumer.close()
