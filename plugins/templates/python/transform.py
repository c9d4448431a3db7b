"""Drops records whose number is too small, and says of the others how it judged them.

Config: {"at_least":10}
"""

from levada import transform

SCHEMA = {"type": "object", "properties": {"at_least": {"type": "number"}}, "required": ["at_least"]}


def judge(record, config, call):
    value = record.get("value")
    amount = value.get("amount") if isinstance(value, dict) else None
    if not isinstance(amount, (int, float)):
        return {"reject": "amount is not a number"}
    if amount < config["at_least"]:
        return "drop"
    if amount > 1000 * config["at_least"]:
        return {"emit": [{"value": {**value, "size": "huge"}}]}
    return "pass"


# What is read of a record: "key", "value", "headers", "timestamp", "place". Fewer parts are faster.
Module, TransformJson = transform(judge, fields=["value"], config_schema=SCHEMA)
