"""levada.h held against the contract's vectors, by a program in C that the compiler's sanitizers watch."""

import json
import pathlib
import subprocess
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent


class Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.program = f"{cls.folder.name}/read"
        flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
        subprocess.run(["cc", *flags, HERE / "test_levada.c", "-o", cls.program], check=True)

    def told(self, data, *words):
        ended = subprocess.run([self.program, *words], input=data.hex(), text=True, capture_output=True)
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        return ended.stdout

    def vectors(self, kind):
        return json.loads((HERE / "../wit/0.1.0/vectors/batch.json").read_text())[kind]

    def test_batches_are_read_as_the_vectors_say(self):
        for vector in self.vectors("vectors"):
            batch, lines = vector["batch"], []
            for section in batch["sections"]:
                for record in section["records"]:
                    delta = 0 if section["timestamp_type"] == 1 else record["timestamp_delta"]
                    place = [section["topic"], section["partition"], record["offset"], section["base_timestamp"] + delta]
                    parts = ["null" if record[part] is None else record[part] for part in ("key", "value")]
                    lines.append(" ".join(map(str, place + parts)))
            lines.append(f"read {batch['time']} {batch['seed']}")
            self.assertEqual(self.told(bytes.fromhex(vector["hex"])).splitlines(), lines, vector["name"])

    def test_batches_that_are_cut_off_are_read_to_no_end_beyond_theirs(self):
        for vector in self.vectors("vectors"):
            data = bytes.fromhex(vector["hex"])
            for length in {*range(0, len(data), 7), len(data) - 1}:
                self.assertIn("failed", self.told(data[:length]), (vector["name"], length))

    def test_texts_are_read_as_json_says(self):
        for text in ["", "Alaska", "caf\u00e9", '"\\/\b\f\n\r\t', "\u20ac\u0800\ud7ff", "\U0001f600\U0010ffff!", "\0\x7f\x80"]:
            for written in (json.dumps(text), json.dumps(text, ensure_ascii=False)):
                data = written.encode()
                expected = f"{len(data)} {text.encode().hex()}\n"
                self.assertEqual(self.told(data + b"} ", "text"), expected, written)
                for length in range(1, len(data)):
                    self.assertTrue(self.told(data[:length], "text").startswith("-1 "), written)


if __name__ == "__main__":
    unittest.main()
