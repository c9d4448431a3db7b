import json
import unittest

import levada_testing

levada_testing.without_bindings()

from app import Module, TransformJson  # noqa: E402


class Test(unittest.TestCase):
    def test_places_that_match_are_kept(self):
        Module().init('{"place":"Alaska|Chile"}')
        values = [{"place": "near Kobuk, Alaska"}, {"place": "Peru"}, {"place": None}, {}, "Alaska"]
        records = [{"value": value} for value in values] + [{}]
        self.assertEqual(TransformJson().transform_json(json.dumps(records), 0, 0).value, [0])


if __name__ == "__main__":
    unittest.main()
