"""Count, sum and mean of a number in each group and window."""

from levada import aggregator


def zero(config):
    # An accumulator is any JSON, up to 64 KiB.
    return {"count": 0, "sum": 0}


def add(totals, record, group, config):
    value = record.value
    amount = value.get("amount") if isinstance(value, dict) else None
    if isinstance(amount, (int, float)):
        totals["count"] += 1
        totals["sum"] += amount
    return totals


def value(totals, group, config):
    return {**totals, "mean": totals["sum"] / totals["count"]} if totals["count"] else None


def merge(totals, later, config):
    # Session windows need this: they grow together.
    return {"count": totals["count"] + later["count"], "sum": totals["sum"] + later["sum"]}


Module, Aggregator = aggregator(zero, add, value, merge=merge, fields=["value"])
