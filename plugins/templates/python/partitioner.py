"""Places records by what stands in their key before a colon."""

from levada import murmur2, partitioner


def place(record, partition_count, config, call):
    if record.key is None:
        return call.seed % partition_count
    return (murmur2(record.key.split(":")[0]) & 0x7FFFFFFF) % partition_count


Module, Partitioner = partitioner(place, fields=["key"])
