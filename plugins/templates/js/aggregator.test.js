import assert from 'node:assert/strict';
import { test } from 'node:test';

import { answers, batch, groups } from './levada/testing.js';
import { aggregator, module } from './module.js';

test('numbers add up', () => {
  module.init('{}');
  const records = batch(['{"amount":1}', 'words', '{"amount":2}']);
  const state = answers(aggregator.fold(groups([{ key: 'group', places: [0, 1, 2] }]), records, false));
  assert.deepEqual(state, [{ count: 2, sum: 3 }]);
  const rows = answers(aggregator.result(groups([{ key: 'group', accumulators: state }])));
  assert.deepEqual(rows, [{ count: 2, sum: 3, mean: 1.5 }]);
});
