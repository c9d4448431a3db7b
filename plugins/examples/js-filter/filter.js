// Keeps the earthquakes that are strong enough and of the kinds that are wanted.

import { filter } from '../../sdk-js/levada.js';

export const { module, transformJson } = filter({
  fields: ['value'],
  configSchema: {
    type: 'object',
    properties: {
      at_least: { type: 'number' },
      kinds: { type: 'array', items: { type: 'string' } },
    },
    required: ['at_least'],
    additionalProperties: false,
  },
  init: ({ at_least: atLeast, kinds }) => ({ atLeast, kinds: kinds && new Set(kinds) }),
  keep: ({ value: quake }, { atLeast, kinds }) => quake?.magnitude >= atLeast && (!kinds || kinds.has(quake.kind)),
});
