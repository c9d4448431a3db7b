import assert from 'node:assert/strict';
import { test } from 'node:test';

import { module, transformJson } from './module.js';

test('small ones are dropped', () => {
  module.init('{"at_least":10}');
  const records = [{ value: { amount: 10 } }, { value: { amount: 9 } }, { value: {} }, { value: { amount: 99999 } }];
  const verdicts = transformJson.transformJson(JSON.stringify(records), 0n, 0n);
  assert.deepEqual(JSON.parse(verdicts.val), [
    'pass',
    'drop',
    { reject: 'amount is not a number' },
    { emit: [{ value: { amount: 99999, size: 'huge' } }] },
  ]);
});
