import unittest

import levada_testing
from levada_testing import answers, batch, groups

levada_testing.without_bindings()

from app import Aggregator, Module  # noqa: E402


class Test(unittest.TestCase):
    def test_numbers_add_up(self):
        Module().init("{}")
        records = batch(['{"amount":1}', "words", '{"amount":2}'])
        state = answers(Aggregator().fold(groups([{"key": "group", "places": [0, 1, 2]}]), records, False))
        self.assertEqual(state, [{"count": 2, "sum": 3}])
        rows = answers(Aggregator().result(groups([{"key": "group", "accumulators": state}])))
        self.assertEqual(rows, [{"count": 2, "sum": 3, "mean": 1.5}])


if __name__ == "__main__":
    unittest.main()
