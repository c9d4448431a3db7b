"""Write Levada's modules in Python: copy this file beside yours. Each function here makes the exports of one world out of
plain functions, and reads and writes the contract's layouts (plugins/wit/0.1.0/layouts.md), so that you never see them.

    from levada import filter

    Module, TransformJson = filter(lambda record, config: record.get("key") in config["keys"])

All take `fields` (the parts of a record that are read: "key", "value", "headers", "timestamp", "place"), `config_schema` (a
JSON Schema, as a dict) and `init` (config -> what the other functions get as their config; what it raises is shown to whoever
wrote the config). There is no clock and no randomness but `call.time_ms` and `call.seed`.
"""

import json
import struct
from dataclasses import dataclass, field
from typing import Any, NamedTuple

LAYOUT_VERSION = 1


class Unsupported(Exception):
    """Raised where a module does not offer a call."""


class Call(NamedTuple):
    """The clock and the randomness of one call."""

    time_ms: int
    seed: int


class Window(NamedTuple):
    """A window of time."""

    start_ms: int
    end_ms: int


@dataclass
class Record:
    """A record for partitioners and aggregators. In filters and transforms a record is a dict, as the JSON form says."""

    topic: str
    timestamp: int | None
    key_bytes: bytes | None
    value_bytes: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None = None
    offset: int | None = None

    @property
    def key(self) -> str | None:
        """The key as text, or none."""
        return None if self.key_bytes is None else self.key_bytes.decode()

    @property
    def value(self) -> Any:
        """The value, read from JSON; None where it is none."""
        try:
            return None if self.value_bytes is None else json.loads(self.value_bytes)
        except ValueError:
            return None


@dataclass
class Group:
    """Which group it is: its key as text, its window if there are windows, and the call."""

    key: str
    window: Window | None
    call: Call
    accumulators: list[bytes] = field(default_factory=list, repr=False)
    places: list[int] = field(default_factory=list, repr=False)


def filter(keep, **options):
    """Keeps records or drops them: `keep(record, config)` is true or false. A record is a dict with the members of the JSON
    form that `fields` names; in a tombstone there is no "value"."""

    def kept(verdicts, records, config, call):
        return verdicts.JsonVerdicts_Keep([place for place, record in enumerate(records) if keep(record, config)])

    return _judging(kept, **options)


def transform(judge, **options):
    """Says what becomes of each record: `judge(record, config, call)` is "pass", "drop", {"reject": "reason"} or
    {"emit": [{"key": …, "value": …, "headers": …, "timestamp": …, "tombstone": …}, …]}. What an emitted record does not say is
    as it was in the record whose place it takes."""

    def judged(verdicts, records, config, call):
        return verdicts.JsonVerdicts_Each(json.dumps([judge(record, config, call) for record in records]))

    return _judging(judged, **options)


def partitioner(place, fields=("key",), **options):
    """Places records: `place(record, partition_count, config, call)` is a number from 0 to below the count. `murmur2` is what
    the broker uses itself."""
    Module, run = _made(fields=fields, **options)

    class Partitioner:
        def partition(self, keys, partition_count):
            records, call = _read_keys(keys)
            return run(lambda config: [place(record, partition_count, config, call) for record in records])

    return Module, Partitioner


def assignor(assign, **options):
    """Shares partitions out: `assign(input, config)` is a list for each of `input.members`, of `TopicPartition` of
    `wit_world.exports.assignor`; topics are places in `input.topics`."""
    Module, run = _made(fields=(), **options)

    class Assignor:
        def assign(self, input):
            return run(lambda config: assign(input, config))

    return Module, Assignor


def aggregator(zero, add, value, merge=None, remove=None, close=None, migrate=None, state_version=0, **options):
    """Folds records: `zero(config)` is an empty accumulator, any JSON; `add(accumulator, record, group, config)` answers the
    accumulator with the record in it; `value(accumulator, group, config)` is any JSON, or None where there is no row.
    Optional: `merge(accumulator, later, config)`, `remove(accumulator, record, group, config)`, `close(accumulator, group,
    config)`, `migrate(from_version, accumulator, config)`."""
    Module, run = _made(state_version=state_version, **options)

    def folded(step, groups, batch, each_record):
        def answers(config):
            records = _read_batch(batch)
            for group in _read_groups(groups):
                state = json.loads(group.accumulators[0]) if group.accumulators else zero(config)
                for place in group.places:
                    state = step(state, records[place], group, config)
                    if each_record:
                        yield state
                if not each_record:
                    yield state

        return run(lambda config: _write_answers(answers(config), null=False))

    def answered(groups, answer, null=False):
        return run(lambda config: _write_answers([answer(group, config) for group in _read_groups(groups)], null))

    def merged(group, config):
        parts = [json.loads(part) for part in group.accumulators]
        for later in parts[1:]:
            parts[0] = _offered(merge)(parts[0], later, config)
        return parts[0]

    class Aggregator:
        def fold(self, groups, batch, each_record):
            return folded(add, groups, batch, each_record)

        def result(self, groups):
            return answered(groups, lambda group, config: value(_state(group), group, config), null=True)

        def merge(self, groups):
            return answered(groups, merged)

        def subtract(self, groups, batch):
            return folded(lambda *step: _offered(remove)(*step), groups, batch, False)

        def close(self, groups):
            return answered(groups, lambda group, config: (close or value)(_state(group), group, config), null=True)

        def migrate(self, from_version, groups):
            def migrated(group, config):
                state = _state(group)
                return state if from_version == state_version else _offered(migrate)(from_version, state, config)

            return answered(groups, migrated)

    return Module, Aggregator


def murmur2(key):
    """The 32-bit MurmurHash2 of Kafka's clients, of bytes or a text. Where they place a key:
    (murmur2(key) & 0x7fffffff) % partition_count."""
    data = key.encode() if isinstance(key, str) else bytes(key)
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    hash = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        word = word * m & mask
        hash = (hash * m & mask) ^ ((word ^ word >> 24) * m & mask)
    if rest := data[whole:]:
        hash = (hash ^ int.from_bytes(rest, "little")) * m & mask
    hash = (hash ^ hash >> 13) * m & mask
    return hash ^ hash >> 15


def _judging(judge, **options):
    Module, run = _made(**options)

    class TransformJson:
        def transform_json(self, records, time_ms, seed):
            from wit_world.exports import transform_json as verdicts

            return run(lambda config: judge(verdicts, json.loads(records), config, Call(time_ms, seed)))

    return Module, TransformJson


def _made(fields=("value",), config_schema=None, state_version=0, init=lambda config: config):
    """The export `module`, and what runs the others: an exception becomes a fault, and so is found by the broker."""
    # The bindings are there only in the component, so they are imported where they are used: tests run without them.
    state = []

    class Module:
        def describe(self):
            from wit_world.exports.module import Description
            from wit_world.imports.types import Fields

            flags = Fields(0)
            for name in fields:
                flags |= Fields[name.upper()]
            schema = None if config_schema is None else json.dumps(config_schema)
            return Description(LAYOUT_VERSION, flags, schema, state_version)

        def init(self, config):
            try:
                state[:] = [init(json.loads(config))]
            except Exception as error:
                from componentize_py_types import Err

                raise Err(_said(error)) from error

    def run(call):
        try:
            if not state:
                raise ValueError("the module is not initialised")
            return call(state[0])
        except Exception as error:
            from componentize_py_types import Err
            from wit_world.imports.types import Fault_Failed, Fault_Unsupported

            fault = Fault_Unsupported() if isinstance(error, Unsupported) else Fault_Failed(_said(error))
            raise Err(fault) from error

    return Module, run


def _said(error):
    return str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"


def _offered(function):
    if function is None:
        raise Unsupported
    return function


def _state(group):
    return json.loads(group.accumulators[0])


class _Reader:
    """Reads a layout from its start to its end."""

    def __init__(self, data):
        self.data, self.at = bytes(data), 0
        if self.one("<B") != LAYOUT_VERSION:
            raise ValueError("not the layout version that the module declared")

    def read(self, layout):
        values = struct.unpack_from(layout, self.data, self.at)
        self.at += struct.calcsize(layout)
        return values

    def one(self, layout):
        return self.read(layout)[0]

    def take(self, length):
        if self.at + length > len(self.data):
            raise ValueError("a layout ends too early")
        self.at += length
        return self.data[self.at - length : self.at]

    def nullable(self, length):
        return None if length < 0 else self.take(length)

    def varint(self):
        number = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)


def _read_keys(data):
    reader = _Reader(data)
    parts, topic_length, count, time_ms, seed = reader.read("<BHIqQ")
    topic = reader.take(topic_length).decode()
    records = []
    for _ in range(count):
        timestamp = reader.one("<q") if parts & 8 else None
        key = reader.nullable(reader.one("<i")) if parts & 1 else None
        value = reader.nullable(reader.one("<i")) if parts & 2 else None
        headers = []
        for _ in range(reader.one("<I") if parts & 4 else 0):
            name = reader.take(reader.one("<I")).decode()
            headers.append((name, reader.nullable(reader.one("<i"))))
        records.append(Record(topic, timestamp, key, value, headers))
    return records, Call(time_ms, seed)


def _read_batch(data):
    reader = _Reader(data)
    _, sections, _, _ = reader.read("<3sIqQ")
    return [record for _ in range(sections) for record in _read_section(reader)]


def _read_section(reader):
    base, base_time, partition, count, _, time_type, _, topic_length, _ = reader.read("<QqIIIBBH8s")
    topic = reader.take(topic_length).decode()
    for _ in range(count):
        length = reader.varint()
        end = reader.at + length
        reader.at += 1
        time_delta, offset = reader.varint(), base + reader.varint()
        key, value = reader.nullable(reader.varint()), reader.nullable(reader.varint())
        headers = []
        for _ in range(reader.varint()):
            name = reader.take(reader.varint()).decode()
            headers.append((name, reader.nullable(reader.varint())))
        reader.at = end
        yield Record(topic, base_time + (0 if time_type == 1 else time_delta), key, value, headers, partition, offset)


def _read_groups(data):
    reader = _Reader(data)
    _, count, time_ms, seed = reader.read("<3sIqQ")
    groups = []
    for _ in range(count):
        windowed = reader.one("<B") == 1
        key = reader.take(reader.one("<I")).decode()
        window = Window(*reader.read("<qq")) if windowed else None
        accumulators = [reader.take(reader.one("<I")) for _ in range(reader.one("<I"))]
        places = [reader.one("<I") for _ in range(reader.one("<I"))]
        groups.append(Group(key, window, Call(time_ms, seed), accumulators, places))
    return groups


def _write_answers(answers, null):
    """Each answer as JSON; None is no row where there may be none."""
    parts = [None if null and answer is None else json.dumps(answer).encode() for answer in answers]
    body = b"".join(struct.pack("<i", -1) if part is None else struct.pack("<i", len(part)) + part for part in parts)
    return struct.pack("<B3xI", LAYOUT_VERSION, len(parts)) + body
