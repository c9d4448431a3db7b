import assert from 'node:assert/strict';
import { test } from 'node:test';

import { assignor, module } from './module.js';

test('shares are even', () => {
  module.init('{}');
  const member = (memberId) => ({ memberId, subscribed: [0], owned: [] });
  const partitions = [0, 1, 2, 3, 4].map((partition) => ({ partition }));
  const topics = [{ topicId: 'id', name: 'orders', partitions }];
  const lists = assignor.assign({ members: [member('a'), member('b')], topics });
  assert.deepEqual(lists.map((list) => list.length), [3, 2]);
});
