// Write Levada's modules in JavaScript: copy this file beside yours. Each function here makes the exports of one world out of
// plain functions, and reads and writes the contract's layouts (plugins/wit/0.1.0/layouts.md), so that you never see them.
//
//     import { filter } from './levada.js';
//     export const { module, transformJson } = filter({
//       keep: (record, config) => record.value?.magnitude >= config.at_least,
//     });
//
// All take `fields` (the parts of a record that are read: 'key', 'value', 'headers', 'timestamp', 'place'), `configSchema` (a
// JSON Schema, as an object) and `init` (config => what the other functions get as `config`; what it throws is shown to whoever
// wrote the config). There is no clock and no randomness but `call.timeMs` and `call.seed`, which is a BigInt.

const LAYOUT_VERSION = 1;

// Keeps records or drops them. `keep(record, config, call)` is true or false. A record is what the JSON form says: `key`,
// `value` (undefined in a tombstone), `headers`, `timestamp`, `topic`, `partition`, `offset`, as far as `fields` names them.
export function filter(options) {
  const kept = (records, config, call) => {
    const places = [];
    for (let place = 0; place < records.length; place++) {
      if (options.keep(records[place], config, call)) places.push(place);
    }
    return { tag: 'keep', val: new Uint32Array(places) };
  };
  return judging(options, kept);
}

// Says what becomes of each record: `transform(record, config, call)` is 'pass', 'drop', { reject: 'reason' } or
// { emit: [{ key, value, headers, timestamp, tombstone }, …] }. What an emitted record does not say is as it was in the record
// whose place it takes.
export function transform(options) {
  const judged = (records, config, call) => {
    const verdicts = records.map((record) => options.transform(record, config, call));
    return { tag: 'each', val: JSON.stringify(verdicts) };
  };
  return judging(options, judged);
}

// Places records: `partition(record, partitionCount, config, call)` is a number from 0 to below the count. A record has `topic`,
// `key` (text or null), `value` (from JSON, else undefined), `keyBytes`, `valueBytes`, `headers`, `timestamp`. `murmur2` below is
// what the broker uses itself.
export function partitioner(options) {
  const { module, run } = made({ fields: ['key'], ...options });
  const partition = (keys, partitionCount) => {
    const { records, call } = readKeys(keys);
    return new Uint32Array(run((config) => records.map((one) => options.partition(one, partitionCount, config, call))));
  };
  return { module, partitioner: { partition } };
}

// Shares partitions out: `assign(input, config)` is a list for each of `input.members`, of { topic, partition }; topics are
// places in `input.topics`.
export function assignor(options) {
  const { module, run } = made({ fields: [], ...options });
  return { module, assignor: { assign: (input) => run((config) => options.assign(input, config)) } };
}

// Folds records: `zero(config)` is an empty accumulator, any JSON; `add(accumulator, record, group, config)` answers the
// accumulator with the record in it; `value(accumulator, group, config)` is any JSON, or undefined where there is no row.
// Optional: `merge(accumulator, later, config)`, `remove(accumulator, record, group, config)`, `close(accumulator, group, config)`,
// `migrate(fromVersion, accumulator, config)`, `stateVersion`. A group has `key` and `window` ({ startMs, endMs } or null).
export function aggregator(options) {
  const { module, run } = made(options);
  const accumulator = (group) => JSON.parse(text(group.accumulators[0]));
  const answered = (bytes, answer) =>
    run((config) => writeAnswers(readGroups(bytes).map((group) => answer(group, config))));
  const valued = (value) => (bytes) => answered(bytes, (group, config) => value(accumulator(group), group, config));
  const offered = (name) => options[name] ?? (() => { throw { tag: 'unsupported' }; });
  const folded = (step, each) => (bytes, batch, eachRecord) =>
    run((config) => {
      const records = readBatch(batch);
      const answers = [];
      for (const group of readGroups(bytes)) {
        let state = group.accumulators.length ? accumulator(group) : options.zero(config);
        for (const place of group.places) {
          state = step(state, records[place], group, config);
          if (each && eachRecord) answers.push(state);
        }
        if (!(each && eachRecord)) answers.push(state);
      }
      return writeAnswers(answers);
    });
  return {
    module,
    aggregator: {
      fold: folded(options.add, true),
      result: valued(options.value),
      close: valued(options.close ?? options.value),
      merge: (bytes) => answered(bytes, (group, config) =>
        group.accumulators.map((part) => JSON.parse(text(part))).reduce((all, later) => offered('merge')(all, later, config))),
      subtract: folded((state, ...rest) => offered('remove')(state, ...rest), false),
      migrate: (fromVersion, bytes) => answered(bytes, (group, config) =>
        fromVersion === (options.stateVersion ?? 0)
          ? accumulator(group)
          : offered('migrate')(fromVersion, accumulator(group), config)),
    },
  };
}

// The 32-bit MurmurHash2 of Kafka's clients, of bytes or a text. Where they place a key:
// (murmur2(key) & 0x7fffffff) % partitionCount.
export function murmur2(key) {
  const bytes = typeof key === 'string' ? utf8(key) : key;
  const M = 0x5bd1e995;
  let hash = 0x9747b28c ^ bytes.length;
  let at = 0;
  for (; at + 4 <= bytes.length; at += 4) {
    let word = bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24);
    word = Math.imul(word, M);
    word = Math.imul(word ^ (word >>> 24), M);
    hash = Math.imul(hash, M) ^ word;
  }
  if (at < bytes.length) {
    for (let i = at; i < bytes.length; i++) hash ^= bytes[i] << (8 * (i - at));
    hash = Math.imul(hash, M);
  }
  hash = Math.imul(hash ^ (hash >>> 13), M);
  return (hash ^ (hash >>> 15)) >>> 0;
}

function judging(options, judge) {
  const { module, run } = made(options);
  const transformJson = (records, timeMs, seed) =>
    run((config) => judge(JSON.parse(records), config, { timeMs: Number(timeMs), seed }));
  return { module, transformJson: { transformJson } };
}

// The interface `module`, and what runs the others: an error becomes a fault, and so is found by the broker.
function made({ fields = ['value'], configSchema, stateVersion = 0, init = (config) => config }) {
  let state;
  const module = {
    describe: () => ({
      layoutVersion: LAYOUT_VERSION,
      fields: Object.fromEntries(fields.map((field) => [field, true])),
      configSchema: configSchema && JSON.stringify(configSchema),
      stateVersion,
    }),
    init: (config) => {
      try {
        state = { config: init(JSON.parse(config)) };
      } catch (error) {
        throw said(error);
      }
    },
  };
  const run = (call) => {
    if (!state) throw { tag: 'failed', val: 'the module is not initialised' };
    try {
      return call(state.config);
    } catch (error) {
      throw error?.tag ? error : { tag: 'failed', val: said(error) };
    }
  };
  return { module, run };
}

function said(error) {
  return String(error?.message ?? error);
}

// Layouts. QuickJS has no TextDecoder, so text goes through percent-encoding.

function text(bytes) {
  let latin = '';
  for (let at = 0; at < bytes.length; at += 4096) latin += String.fromCharCode.apply(null, bytes.subarray(at, at + 4096));
  return decodeURIComponent(escape(latin));
}

function utf8(string) {
  return Uint8Array.from(unescape(encodeURIComponent(string)), (char) => char.charCodeAt(0));
}

class Rec {
  constructor(parts) {
    Object.assign(this, parts);
  }

  get key() {
    return this.keyBytes && text(this.keyBytes);
  }

  get value() {
    try {
      return this.valueBytes ? JSON.parse(text(this.valueBytes)) : undefined;
    } catch {
      return undefined;
    }
  }
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    if (this.u8() !== LAYOUT_VERSION) throw new Error('not the layout version that the module declared');
  }

  u8() { return this.view.getUint8(this.at++); }
  u16() { return this.view.getUint16((this.at += 2) - 2, true); }
  u32() { return this.view.getUint32((this.at += 4) - 4, true); }
  i32() { return this.view.getInt32((this.at += 4) - 4, true); }
  i64() { return Number(this.view.getBigInt64((this.at += 8) - 8, true)); }
  u64() { return this.view.getBigUint64((this.at += 8) - 8, true); }

  take(length) {
    if (this.at + length > this.bytes.length) throw new Error('a layout ends too early');
    return this.bytes.subarray(this.at, (this.at += length));
  }

  nullable(length = this.i32()) { return length < 0 ? null : this.take(length); }
  text(length = this.u32()) { return text(this.take(length)); }
  list(count, item) { return Array.from({ length: count }, () => item()); }
  call() { return { timeMs: this.i64(), seed: this.u64() }; }

  // A zig-zag varint. Up to 2^53 it is exact.
  varint() {
    let number = 0;
    for (let unit = 1; ; unit *= 128) {
      const byte = this.u8();
      number += (byte & 0x7f) * unit;
      if (byte < 0x80) return number % 2 ? -(number + 1) / 2 : number / 2;
    }
  }
}

function readKeys(bytes) {
  const reader = new Reader(bytes);
  const parts = reader.u8();
  const [topicLength, count] = [reader.u16(), reader.u32()];
  const call = reader.call();
  const topic = reader.text(topicLength);
  const records = reader.list(count, () => new Rec({
    topic,
    timestamp: parts & 8 ? reader.i64() : undefined,
    keyBytes: parts & 1 ? reader.nullable() : null,
    valueBytes: parts & 2 ? reader.nullable() : null,
    headers: parts & 4 ? reader.list(reader.u32(), () => [reader.text(), reader.nullable()]) : [],
  }));
  return { records, call };
}

function readBatch(bytes) {
  const reader = new Reader(bytes);
  reader.take(3);
  const sections = reader.u32();
  reader.call();
  return reader.list(sections, () => readSection(reader)).flat();
}

function readSection(reader) {
  const [base, baseTimestamp] = [Number(reader.u64()), reader.i64()];
  const [partition, count] = [reader.u32(), reader.u32()];
  reader.u32();
  const appendTime = reader.u8() === 1;
  reader.u8();
  const topicLength = reader.u16();
  reader.take(8);
  const topic = reader.text(topicLength);
  return reader.list(count, () => {
    const end = reader.varint() + reader.at;
    reader.u8();
    const [timestampDelta, offsetDelta] = [reader.varint(), reader.varint()];
    const record = new Rec({
      topic,
      partition,
      offset: base + offsetDelta,
      timestamp: baseTimestamp + (appendTime ? 0 : timestampDelta),
      keyBytes: reader.nullable(reader.varint()),
      valueBytes: reader.nullable(reader.varint()),
      headers: reader.list(reader.varint(), () => [reader.text(reader.varint()), reader.nullable(reader.varint())]),
    });
    reader.at = end;
    return record;
  });
}

function readGroups(bytes) {
  const reader = new Reader(bytes);
  reader.take(3);
  const count = reader.u32();
  const call = reader.call();
  return reader.list(count, () => {
    const windowed = reader.u8() === 1;
    return {
      call,
      key: reader.text(),
      window: windowed ? { startMs: reader.i64(), endMs: reader.i64() } : null,
      accumulators: reader.list(reader.u32(), () => reader.take(reader.u32())),
      places: reader.list(reader.u32(), () => reader.u32()),
    };
  });
}

// Each answer as JSON; undefined is no row.
function writeAnswers(answers) {
  const parts = answers.map((answer) => (answer === undefined ? null : utf8(JSON.stringify(answer))));
  const bytes = new Uint8Array(parts.reduce((size, part) => size + 4 + (part?.length ?? 0), 8));
  const view = new DataView(bytes.buffer);
  bytes[0] = LAYOUT_VERSION;
  view.setUint32(4, parts.length, true);
  let at = 8;
  for (const part of parts) {
    view.setInt32(at, part?.length ?? -1, true);
    at += 4;
    if (part) bytes.set(part, at);
    at += part?.length ?? 0;
  }
  return bytes;
}
