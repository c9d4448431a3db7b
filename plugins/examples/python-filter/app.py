"""Keeps the earthquakes whose place matches a regular expression."""

import re

from levada import filter

SCHEMA = {
    "type": "object",
    "properties": {"place": {"type": "string", "description": "A regular expression, such as 'Alaska|Chile'"}},
    "required": ["place"],
    "additionalProperties": False,
}


def keep(record, pattern):
    quake = record.get("value")
    place = quake.get("place") if isinstance(quake, dict) else None
    return isinstance(place, str) and pattern.search(place) is not None


Module, TransformJson = filter(keep, config_schema=SCHEMA, init=lambda config: re.compile(config["place"]))
