"""What a broker would send, and what a module answers, for tests that run outside of the broker."""

import json
import struct
import sys
import types

TIME_MS, SEED = 1_700_000_000_000, 42


def without_bindings():
    """Puts plain classes in place of the bindings, which are only in the component. Call it before anything else."""

    def holder(name, **members):
        module = sys.modules[name] = types.ModuleType(name)
        for member, value in members.items():
            setattr(module, member, value)

    def plain(name, *members):
        def init(self, *values):
            for member, value in zip(members, values, strict=True):
                setattr(self, member, value)

        return type(name, (), {"__init__": init})

    class Err(Exception):
        def __init__(self, value):
            super().__init__(value)
            self.value = value

    holder("componentize_py_types", Err=Err)
    holder("wit_world")
    holder("wit_world.exports")
    holder("wit_world.imports")
    verdicts = {name: plain(name, "value") for name in ("JsonVerdicts_Keep", "JsonVerdicts_Each")}
    holder("wit_world.exports.transform_json", **verdicts)
    sys.modules["wit_world.exports"].transform_json = sys.modules["wit_world.exports.transform_json"]
    holder("wit_world.exports.assignor", TopicPartition=plain("TopicPartition", "topic", "partition"))
    holder("wit_world.imports.types", Fault_Failed=plain("Fault_Failed", "value"), Fault_Unsupported=plain("Fault_Unsupported"))


def keys(all, topic="test"):
    """A keys layout of records with these keys (texts, or None)."""
    head = struct.pack("<BBHIqQ", 1, 1, len(topic), len(all), TIME_MS, SEED) + topic.encode()
    return head + b"".join(struct.pack("<i", -1) if key is None else _sized(key.encode()) for key in all)


def batch(values, topic="test"):
    """A batch layout of records with these values (texts, or None), from offset 0 of partition 0."""
    records = b""
    for offset, value in enumerate(values):
        part = _varint(-1) if value is None else _varint(len(value.encode())) + value.encode()
        body = b"\0" + _varint(0) + _varint(offset) + _varint(-1) + part + _varint(0)
        records += _varint(len(body)) + body
    section = struct.pack("<QqIIIBBH8x", 0, TIME_MS, 0, len(values), len(records), 0, 0, len(topic))
    return struct.pack("<BB2xIqQ", 1, 3, 1, TIME_MS, SEED) + section + topic.encode() + records


def groups(all):
    """A groups layout. A group is a dict with "key", and as they are there "window" (a pair of times), "accumulators" (any JSON)
    and "places"."""
    data = struct.pack("<B3xIqQ", 1, len(all), TIME_MS, SEED)
    for group in all:
        window, states, places = group.get("window"), group.get("accumulators", []), group.get("places", [])
        data += struct.pack("<B", window is not None) + _sized(group["key"].encode())
        data += struct.pack("<qq", *window) if window else b""
        data += struct.pack("<I", len(states)) + b"".join(_sized(json.dumps(state).encode()) for state in states)
        data += struct.pack(f"<I{len(places)}I", len(places), *places)
    return data


def answers(data):
    """The answers of an aggregator, read from JSON; no row is None."""
    (count,), at, read = struct.unpack_from("<I", data, 4), 8, []
    for _ in range(count):
        (length,) = struct.unpack_from("<i", data, at)
        at += 4
        read.append(None if length < 0 else json.loads(data[at : at + length]))
        at += max(length, 0)
    return read


def _sized(data):
    return struct.pack("<I", len(data)) + data


def _varint(number):
    rest = number << 1 if number >= 0 else -2 * number - 1
    data = b""
    while rest >= 0x80:
        data += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return data + bytes([rest])
