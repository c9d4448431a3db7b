import unittest

import levada_testing

levada_testing.without_bindings()

from app import Module, Partitioner  # noqa: E402


class Test(unittest.TestCase):
    def test_what_begins_alike_lies_together(self):
        Module().init("{}")
        placed = Partitioner().partition(levada_testing.keys(["acme:1", "acme:2", "acme", None]), 12)
        self.assertEqual(len(set(placed[:3])), 1)
        self.assertTrue(all(partition < 12 for partition in placed))


if __name__ == "__main__":
    unittest.main()
