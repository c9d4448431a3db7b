// What a broker would send, and what a module answers, for tests that run in Node.

const utf8 = new TextEncoder();

// A keys layout of records with these keys (texts, or null).
export function keys(all, { topic = 'test', timeMs = 1_700_000_000_000, seed = 42 } = {}) {
  const head = [1, 1, ...little(topic.length, 2), ...little(all.length, 4), ...call(timeMs, seed), ...utf8.encode(topic)];
  return Uint8Array.from([...head, ...all.flatMap(nullable)]);
}

// A batch layout of records with these values (texts, or null), from offset 0 of partition 0.
export function batch(values, { topic = 'test', timeMs = 1_700_000_000_000, seed = 42 } = {}) {
  const records = values.flatMap((value, offset) => {
    const body = [0, ...varint(0), ...varint(offset), ...varint(-1), ...part(value), ...varint(0)];
    return [...varint(body.length), ...body];
  });
  const section = [...little(0, 8), ...little(timeMs, 8), ...little(0, 4), ...little(values.length, 4), ...little(records.length, 4)];
  const named = [0, 0, ...little(topic.length, 2), ...little(0, 8), ...utf8.encode(topic)];
  return Uint8Array.from([1, 3, 0, 0, ...little(1, 4), ...call(timeMs, seed), ...section, ...named, ...records]);
}

// A groups layout. A group has `key`, and as they are there `window` ({ startMs, endMs }), `accumulators` (any JSON) and `places`.
export function groups(all, { timeMs = 1_700_000_000_000, seed = 42 } = {}) {
  const bytes = all.flatMap(({ key, window, accumulators = [], places = [] }) => [
    window ? 1 : 0,
    ...sized(utf8.encode(key)),
    ...(window ? [...little(window.startMs, 8), ...little(window.endMs, 8)] : []),
    ...little(accumulators.length, 4),
    ...accumulators.flatMap((accumulator) => sized(utf8.encode(JSON.stringify(accumulator)))),
    ...little(places.length, 4),
    ...places.flatMap((place) => little(place, 4)),
  ]);
  return Uint8Array.from([1, 0, 0, 0, ...little(all.length, 4), ...call(timeMs, seed), ...bytes]);
}

// The answers of an aggregator, read from JSON; no row is undefined.
export function answers(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 8;
  return Array.from({ length: view.getUint32(4, true) }, () => {
    const length = view.getInt32(at, true);
    at += 4;
    if (length < 0) return undefined;
    return JSON.parse(new TextDecoder().decode(bytes.subarray(at, (at += length))));
  });
}

function little(number, size) {
  const bits = BigInt.asUintN(8 * size, BigInt(number));
  return Array.from({ length: size }, (_, place) => Number((bits >> BigInt(8 * place)) & 0xffn));
}

function call(timeMs, seed) {
  return [...little(timeMs, 8), ...little(seed, 8)];
}

function sized(bytes) {
  return [...little(bytes.length, 4), ...bytes];
}

function nullable(string) {
  return string === null ? little(-1, 4) : sized(utf8.encode(string));
}

function part(string) {
  if (string === null) return varint(-1);
  const bytes = utf8.encode(string);
  return [...varint(bytes.length), ...bytes];
}

function varint(number) {
  const bytes = [];
  let rest = number < 0 ? -2 * number - 1 : 2 * number;
  for (; rest >= 0x80; rest = Math.floor(rest / 128)) bytes.push((rest % 128) | 0x80);
  return [...bytes, rest];
}
