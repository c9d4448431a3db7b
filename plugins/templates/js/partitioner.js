// Places records by what stands in their key before a colon.

import { murmur2, partitioner as made } from './levada/levada.js';

export const { module, partitioner } = made({
  fields: ['key'],
  partition({ key }, partitionCount, config, call) {
    if (key === null) return Number(call.seed % BigInt(partitionCount));
    return (murmur2(key.split(':')[0]) & 0x7fffffff) % partitionCount;
  },
});
