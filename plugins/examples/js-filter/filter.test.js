import assert from 'node:assert/strict';
import { test } from 'node:test';

import { module, transformJson } from './filter.js';

test('strong ones of the wanted kinds are kept', () => {
  module.init('{"at_least":5,"kinds":["earthquake"]}');
  const quake = (magnitude, kind) => ({ value: { magnitude, kind } });
  const records = [quake(5, 'earthquake'), quake(4.9, 'earthquake'), quake(6, 'explosion'), quake(null), {}, { value: 'words' }];
  const { tag, val } = transformJson.transformJson(JSON.stringify(records), 0n, 0n);
  assert.equal(tag, 'keep');
  assert.deepEqual([...val], [0]);
});
