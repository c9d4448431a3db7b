// Deals the partitions of each topic out to its readers, one after the other.

import { assignor as made } from './levada/levada.js';

export const { module, assignor } = made({
  assign({ members, topics }) {
    const lists = members.map(() => []);
    topics.forEach(({ partitions }, topic) => {
      const readers = lists.filter((_, member) => members[member].subscribed.includes(topic));
      if (readers.length === 0) return;
      partitions.forEach(({ partition }, place) => readers[place % readers.length].push({ topic, partition }));
    });
    return lists;
  },
});
