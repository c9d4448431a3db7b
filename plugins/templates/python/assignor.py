"""Deals the partitions of each topic out to its readers, one after the other."""

from levada import assignor


def assign(input, config):
    from wit_world.exports.assignor import TopicPartition

    lists = [[] for _ in input.members]
    for topic, described in enumerate(input.topics):
        readers = [share for share, member in zip(lists, input.members) if topic in member.subscribed]
        for place, partition in enumerate(described.partitions if readers else []):
            readers[place % len(readers)].append(TopicPartition(topic, partition.partition))
    return lists


Module, Assignor = assignor(assign)
