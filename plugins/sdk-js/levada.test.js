// The SDK held against the contract's vectors.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';

import { aggregator, filter, murmur2, partitioner, transform } from './levada.js';
import { answers, batch, groups, keys } from './testing.js';

const vectors = (name) => JSON.parse(readFileSync(new URL(`../wit/0.1.0/vectors/${name}.json`, import.meta.url))).vectors;
const bytes = (hex) => Uint8Array.from(Buffer.from(hex ?? '', 'hex'));
const hex = (part) => (part === null ? null : Buffer.from(part).toString('hex'));
const headers = (record) => record.headers.map(([name, value]) => [name, hex(value)]);

// An aggregator that keeps what it is shown.
function seen() {
  const shown = { records: [], groups: [] };
  const made = aggregator({
    zero: () => 0,
    add: (count, record, group) => {
      shown.records.push(record);
      shown.groups.push(group);
      return count + 1;
    },
    value: (count) => (count > 1 ? count : undefined),
  });
  made.module.init('{}');
  return { shown, ...made };
}

test('keys are read as the vectors say', () => {
  for (const vector of vectors('keys')) {
    const { parts, records, topic, time, seed } = vector.keys;
    const shown = [];
    const made = partitioner({ fields: parts, partition: (record, _, config, call) => shown.push([record, call]) && 0 });
    made.module.init('{}');
    made.partitioner.partition(bytes(vector.hex), 3);
    const has = (part, value, otherwise) => (parts.includes(part) ? value : otherwise);
    const read = shown.map(([record]) => [record.topic, record.timestamp, hex(record.keyBytes), hex(record.valueBytes), headers(record)]);
    const expected = records.map((record) => [
      topic,
      has('timestamp', record.timestamp, undefined),
      has('key', record.key, null),
      has('value', record.value, null),
      has('headers', record.headers, []),
    ]);
    assert.deepEqual(read, expected, vector.name);
    assert.ok(shown.every(([, call]) => call.timeMs === time && call.seed === BigInt(seed)), vector.name);
  }
});

test('batches are read as the vectors say', () => {
  for (const vector of vectors('batch')) {
    const expected = vector.batch.sections.flatMap((section) => section.records.map((record) => [
      section.topic,
      section.partition,
      Number(record.offset),
      Number(section.base_timestamp) + (section.timestamp_type === 1 ? 0 : Number(record.timestamp_delta)),
      record.key,
      record.value,
      record.headers,
    ]));
    const { shown, aggregator } = seen();
    aggregator.fold(groups([{ key: 'all', places: expected.map((_, place) => place) }]), bytes(vector.hex), false);
    const read = shown.records.map((record) => [
      record.topic, record.partition, record.offset, record.timestamp, hex(record.keyBytes), hex(record.valueBytes), headers(record),
    ]);
    assert.deepEqual(read, expected, vector.name);
  }
});

test('groups are read as the vectors say', () => {
  for (const vector of vectors('groups')) {
    const { shown, aggregator } = seen();
    const expected = vector.groups.groups.filter((group) => group.accumulators.length === 0 && group.records.length > 0);
    if (expected.length !== vector.groups.groups.length) continue;
    const places = Math.max(0, ...expected.flatMap((group) => group.records)) + 1;
    aggregator.fold(bytes(vector.hex), batch(Array(places).fill('1')), false);
    const read = shown.groups.map(({ key, window, call }) => [key, window && [window.startMs, window.endMs], call.timeMs]);
    const each = ({ key, window, records }) => records.map(() => [key, window, vector.groups.time]);
    assert.deepEqual(read, expected.flatMap(each), vector.name);
  }
});

test('an aggregator answers as the layout says', () => {
  const { aggregator } = seen();
  const records = batch(['1', '2', '3']);
  const two = groups([{ key: 'a', window: { startMs: -5, endMs: 5 }, accumulators: [4], places: [0, 2] }, { key: 'b', places: [1] }]);
  assert.deepEqual(answers(aggregator.fold(two, records, true)), [5, 6, 1]);
  assert.deepEqual(answers(aggregator.fold(two, records, false)), [6, 1]);
  assert.deepEqual(answers(aggregator.result(groups([{ key: 'a', accumulators: [6] }, { key: 'b', accumulators: [1] }]))), [6, undefined]);
  assert.equal(hex(aggregator.result(groups([{ key: 'a', accumulators: [3] }, { key: 'b', accumulators: [1] }]))),
    vectors('answers').find(({ name }) => name === 'a value and no row').hex);
  assert.throws(() => aggregator.merge(groups([{ key: 'a', accumulators: [1, 2] }])), { tag: 'unsupported' });
  assert.throws(() => aggregator.subtract(groups([{ key: 'a', accumulators: [1], places: [0] }]), records), { tag: 'unsupported' });
  assert.throws(() => aggregator.fold(two, records.subarray(0, 30), false), { tag: 'failed' });
  assert.deepEqual(answers(aggregator.migrate(0, groups([{ key: 'a', accumulators: [7] }]))), [7]);
  assert.throws(() => aggregator.migrate(1, groups([{ key: 'a', accumulators: [7] }])), { tag: 'unsupported' });
});

test('keys go where Kafka’s client sends them', () => {
  for (const [key, count, expected] of [['100:48069', 12, 9], ['wu', 10, 0], ['thingäöüÄÖÜ', 10, 2], ['TT0124', 15, 10], ['ключ-7', 6, 1], ['', 6, 3]]) {
    assert.equal((murmur2(key) & 0x7fffffff) % count, expected, key);
  }
  const made = partitioner({ partition: ({ key }, count) => (key === null ? 0 : murmur2(key) % count) });
  made.module.init('{}');
  assert.equal(made.partitioner.partition(keys(['ä', null]), 7).length, 2);
});

test('filters and transforms speak the JSON form', () => {
  const kept = filter({ fields: ['key', 'value'], init: ({ least }) => least, keep: ({ value }, least) => value >= least });
  assert.deepEqual(kept.module.describe().fields, { key: true, value: true });
  assert.throws(() => kept.transformJson.transformJson('[]', 0n, 0n), { tag: 'failed' });
  kept.module.init('{"least":2}');
  assert.deepEqual(kept.transformJson.transformJson('[{"value":1},{"value":2},{}]', 0n, 0n), { tag: 'keep', val: new Uint32Array([1]) });
  const judged = transform({ transform: (_, config, call) => ({ reject: `${call.timeMs} ${call.seed}` }) });
  judged.module.init('{}');
  assert.equal(judged.transformJson.transformJson('[{}]', 7n, 2n ** 63n).val, '[{"reject":"7 9223372036854775808"}]');
  const refusing = filter({ init: () => { throw new Error('not so'); }, keep: () => true });
  assert.throws(() => refusing.module.init('{}'), (error) => error === 'not so');
});

test('what the README shows takes every record', async () => {
  const readme = readFileSync(new URL('../README.md', import.meta.url), 'utf8');
  const sdk = new URL('levada.js', import.meta.url);
  const shown = [...readme.matchAll(/```js\n(.*?)```/gs)].map(([, text]) =>
    import(`data:text/javascript,${encodeURIComponent(text.replace('./levada.js', sdk))}`));
  const [filtering, assigning] = await Promise.all(shown);
  filtering.module.init('{"at_least":5}');
  const values = [{ magnitude: 5 }, { magnitude: 4.9 }, { magnitude: null }, {}, null, 1, [1], 'words'];
  const records = [...values.map((value) => ({ value })), {}];
  assert.deepEqual([...filtering.transformJson.transformJson(JSON.stringify(records), 0n, 0n).val], [0]);
  assigning.module.init('{}');
  const member = (subscribed) => ({ memberId: 'id', subscribed, owned: [] });
  const topics = [3, 2].map((count) => ({ partitions: Array.from({ length: count }, (_, partition) => ({ partition })) }));
  const lists = assigning.assignor.assign({ members: [member([]), member([1])], topics });
  assert.deepEqual(lists, [[], [{ topic: 1, partition: 0 }, { topic: 1, partition: 1 }]]);
});
