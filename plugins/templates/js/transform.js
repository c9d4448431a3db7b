// Drops records whose number is too small, and says of the others how it judged them.
// Config: {"at_least":10}

import { transform } from './levada/levada.js';

export const { module, transformJson } = transform({
  // What is read of a record: 'key', 'value', 'headers', 'timestamp', 'place'. Fewer parts are faster.
  fields: ['value'],
  configSchema: { type: 'object', properties: { at_least: { type: 'number' } }, required: ['at_least'] },
  transform({ value }, config) {
    if (typeof value?.amount !== 'number') return { reject: 'amount is not a number' };
    if (value.amount < config.at_least) return 'drop';
    if (value.amount > 1000 * config.at_least) return { emit: [{ value: { ...value, size: 'huge' } }] };
    return 'pass';
  },
});
