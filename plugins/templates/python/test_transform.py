import json
import unittest

import levada_testing

levada_testing.without_bindings()

from app import Module, TransformJson  # noqa: E402


class Test(unittest.TestCase):
    def test_small_ones_are_dropped(self):
        Module().init('{"at_least":10}')
        records = [{"value": {"amount": 10}}, {"value": {"amount": 9}}, {"value": {}}, {"value": {"amount": 99999}}]
        verdicts = TransformJson().transform_json(json.dumps(records), 0, 0)
        expected = ["pass", "drop", {"reject": "amount is not a number"}]
        expected.append({"emit": [{"value": {"amount": 99999, "size": "huge"}}]})
        self.assertEqual(json.loads(verdicts.value), expected)


if __name__ == "__main__":
    unittest.main()
