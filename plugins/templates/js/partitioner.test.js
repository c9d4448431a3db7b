import assert from 'node:assert/strict';
import { test } from 'node:test';

import { keys } from './levada/testing.js';
import { module, partitioner } from './module.js';

test('what begins alike lies together', () => {
  module.init('{}');
  const placed = partitioner.partition(keys(['acme:1', 'acme:2', 'acme', null]), 12);
  assert.equal(new Set(placed.subarray(0, 3)).size, 1);
  assert.ok(placed.every((partition) => partition < 12));
});
