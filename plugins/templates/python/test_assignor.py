import unittest
from types import SimpleNamespace as Record

import levada_testing

levada_testing.without_bindings()

from app import Assignor, Module  # noqa: E402


class Test(unittest.TestCase):
    def test_shares_are_even(self):
        Module().init("{}")
        members = [Record(member_id=name, instance_id=None, subscribed=[0], owned=[]) for name in ("a", "b")]
        topic = Record(topic_id="id", name="orders", partitions=[Record(partition=n, lag=None) for n in range(5)])
        lists = Assignor().assign(Record(members=members, topics=[topic]))
        self.assertEqual([len(share) for share in lists], [3, 2])


if __name__ == "__main__":
    unittest.main()
