"""The SDK held against the contract's vectors."""

import json
import pathlib
import re
import unittest

import levada_testing
from levada_testing import answers, batch, groups

levada_testing.without_bindings()

from componentize_py_types import Err  # noqa: E402
from levada import aggregator, filter, murmur2, partitioner, transform  # noqa: E402


def vectors(name):
    path = pathlib.Path(__file__).parent / "../wit/0.1.0/vectors" / f"{name}.json"
    return json.loads(path.read_text())["vectors"]


def hex(part):
    return None if part is None else part.hex()


def headers(record):
    return [[name, hex(value)] for name, value in record.headers]


def seen():
    """An aggregator that keeps what it is shown."""
    shown = []

    def add(count, record, group, config):
        shown.append((record, group))
        return count + 1

    Module, Aggregator = aggregator(lambda _: 0, add, lambda count, *_: count if count > 1 else None)
    Module().init("{}")
    return shown, Aggregator()


class Test(unittest.TestCase):
    def test_keys_are_read_as_the_vectors_say(self):
        for vector in vectors("keys"):
            keys, shown = vector["keys"], []
            parts = keys["parts"]
            Module, Partitioner = partitioner(lambda record, *rest: shown.append((record, rest[2])) or 0, fields=parts)
            Module().init("{}")
            self.assertEqual(Partitioner().partition(bytes.fromhex(vector["hex"]), 3), [0] * len(keys["records"]))
            for (record, call), expected in zip(shown, keys["records"], strict=True):
                self.assertEqual((record.topic, call), (keys["topic"], (keys["time"], keys["seed"])))
                self.assertEqual(record.timestamp, expected["timestamp"] if "timestamp" in parts else None)
                self.assertEqual(hex(record.key_bytes), expected["key"] if "key" in parts else None)
                self.assertEqual(hex(record.value_bytes), expected["value"] if "value" in parts else None)
                self.assertEqual(headers(record), expected["headers"] if "headers" in parts else [])

    def test_batches_are_read_as_the_vectors_say(self):
        for vector in vectors("batch"):
            expected = []
            for section in vector["batch"]["sections"]:
                for record in section["records"]:
                    delta = 0 if section["timestamp_type"] == 1 else record["timestamp_delta"]
                    place = (section["topic"], section["partition"], record["offset"], section["base_timestamp"] + delta)
                    expected.append((*place, record["key"], record["value"], record["headers"]))
            shown, made = seen()
            made.fold(groups([{"key": "all", "places": range(len(expected))}]), bytes.fromhex(vector["hex"]), False)
            read = [
                (r.topic, r.partition, r.offset, r.timestamp, hex(r.key_bytes), hex(r.value_bytes), headers(r))
                for r, _ in shown
            ]
            self.assertEqual(read, expected, vector["name"])

    def test_groups_are_read_as_the_vectors_say(self):
        for vector in vectors("groups"):
            expected = vector["groups"]["groups"]
            if any(group["accumulators"] or not group["records"] for group in expected):
                continue
            shown, made = seen()
            places = max((place for group in expected for place in group["records"]), default=0)
            made.fold(bytes.fromhex(vector["hex"]), batch(["1"] * (places + 1)), False)
            read = [(group.key, group.window and list(group.window), group.call.time_ms) for _, group in shown]
            each = [(g["key"], g["window"], vector["groups"]["time"]) for g in expected for _ in g["records"]]
            self.assertEqual(read, each, vector["name"])

    def test_an_aggregator_answers_as_the_layout_says(self):
        _, made = seen()
        records = batch(["1", "2", "3"])
        two = groups([{"key": "a", "window": (-5, 5), "accumulators": [4], "places": [0, 2]}, {"key": "b", "places": [1]}])
        self.assertEqual(answers(made.fold(two, records, True)), [5, 6, 1])
        self.assertEqual(answers(made.fold(two, records, False)), [6, 1])
        rows = made.result(groups([{"key": "a", "accumulators": [3]}, {"key": "b", "accumulators": [1]}]))
        expected = next(vector["hex"] for vector in vectors("answers") if vector["name"] == "a value and no row")
        self.assertEqual(rows.hex(), expected)
        self.assertEqual(answers(made.migrate(0, groups([{"key": "a", "accumulators": [7]}]))), [7])
        for call in (
            lambda: made.merge(groups([{"key": "a", "accumulators": [1, 2]}])),
            lambda: made.subtract(groups([{"key": "a", "accumulators": [1], "places": [0]}]), records),
            lambda: made.migrate(1, groups([{"key": "a", "accumulators": [7]}])),
        ):
            with self.assertRaises(Err) as raised:
                call()
            self.assertEqual(type(raised.exception.value).__name__, "Fault_Unsupported")
        with self.assertRaises(Err) as raised:
            made.fold(two, records[:30], False)
        self.assertEqual(type(raised.exception.value).__name__, "Fault_Failed")

    def test_keys_go_where_kafkas_client_sends_them(self):
        for key, count, expected in [
            ("100:48069", 12, 9), ("wu", 10, 0), ("thingäöüÄÖÜ", 10, 2), ("TT0124", 15, 10), ("ключ-7", 6, 1), ("", 6, 3),
        ]:  # fmt: skip
            self.assertEqual((murmur2(key) & 0x7FFFFFFF) % count, expected, key)

    def test_filters_and_transforms_speak_the_json_form(self):
        Module, Judge = filter(lambda record, least: record.get("value", 0) >= least, init=lambda config: config["least"])
        with self.assertRaises(Err):
            Judge().transform_json("[]", 0, 0)
        Module().init('{"least":2}')
        self.assertEqual(Judge().transform_json('[{"value":1},{"value":2},{}]', 0, 0).value, [1])
        Module, Judge = transform(lambda record, config, call: {"reject": f"{call.time_ms} {call.seed}"})
        Module().init("{}")
        self.assertEqual(json.loads(Judge().transform_json("[{}]", 7, 2**63).value), [{"reject": "7 9223372036854775808"}])
        Module, _ = filter(lambda *_: True, init=lambda config: config["missing"])
        with self.assertRaises(Err) as raised:
            Module().init("{}")
        self.assertEqual(raised.exception.value, "KeyError: 'missing'")

    def test_what_the_readme_shows_takes_every_record(self):
        readme = (pathlib.Path(__file__).parent / "../README.md").read_text()
        shown = [{}, {}]
        for names, text in zip(shown, re.findall(r"```python\n(.*?)```", readme, re.S), strict=True):
            exec(text, names)
        shown[0]["Module"]().init('{"at_least":5}')
        values = [{"magnitude": 5}, {"magnitude": 4.9}, {"magnitude": None}, {}, None, 1, [1], "words"]
        records = [{"value": value} for value in values] + [{}]
        self.assertEqual(shown[0]["TransformJson"]().transform_json(json.dumps(records), 0, 0).value, [0])
        shown[1]["Module"]().init("{}")
        keys = levada_testing.keys(["wu", "wu:1", "", None])
        self.assertEqual(shown[1]["Partitioner"]().partition(keys, 10), [0, 0, 1, 2])


if __name__ == "__main__":
    unittest.main()
