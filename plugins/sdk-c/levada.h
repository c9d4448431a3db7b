/* Reads a batch (plugins/wit/0.1.0/layouts.md) record by record, and the texts of a config, for modules in C: copy this file
 * beside yours.
 *
 *     levada_batch batch;
 *     levada_record record;
 *     if (!levada_open(&batch, bytes, length)) return false;
 *     while (levada_next(&batch, &record)) ...
 *     if (batch.failed) return false;
 */
#ifndef LEVADA_H
#define LEVADA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Bytes that belong to the batch. `ptr` is null where there is no key, or for the value of a tombstone. */
typedef struct {
  const uint8_t *ptr;
  size_t len;
} levada_bytes;

typedef struct {
  levada_bytes topic;
  uint32_t partition;
  uint64_t offset;
  int64_t timestamp_ms;
  levada_bytes key;
  levada_bytes value;
} levada_record;

typedef struct {
  const uint8_t *at, *end, *section_end;
  uint32_t sections_left, records_left;
  uint64_t base_offset;
  int64_t base_timestamp_ms, time_ms;
  uint64_t seed;
  bool append_time, failed;
  levada_record section;
} levada_batch;

static inline uint64_t levada_number(const uint8_t *at, int bytes) {
  uint64_t number = 0;
  for (int i = bytes - 1; i >= 0; i--) number = number << 8 | at[i];
  return number;
}

static inline bool levada_open(levada_batch *batch, const uint8_t *bytes, size_t length) {
  *batch = (levada_batch){.at = bytes, .end = bytes + length, .failed = length < 24 || bytes[0] != 1};
  if (batch->failed) return false;
  batch->sections_left = (uint32_t)levada_number(bytes + 4, 4);
  batch->time_ms = (int64_t)levada_number(bytes + 8, 8);
  batch->seed = levada_number(bytes + 16, 8);
  batch->at += 24;
  return true;
}

/* A zig-zag varint of the section. */
static inline int64_t levada_varint(levada_batch *batch) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64 && batch->at < batch->section_end; shift += 7) {
    uint8_t byte = *batch->at++;
    number |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return (int64_t)(number >> 1) ^ -(int64_t)(number & 1);
  }
  batch->failed = true;
  return 0;
}

static inline levada_bytes levada_part(levada_batch *batch) {
  int64_t length = levada_varint(batch);
  if (length < 0) return (levada_bytes){NULL, 0};
  if (length > batch->section_end - batch->at) {
    batch->failed = true;
    return (levada_bytes){NULL, 0};
  }
  levada_bytes part = {batch->at, (size_t)length};
  batch->at += length;
  return part;
}

static inline bool levada_open_section(levada_batch *batch) {
  const uint8_t *at = batch->at;
  if (batch->end - at < 40) return !(batch->failed = true);
  size_t topic_length = (size_t)levada_number(at + 30, 2);
  uint64_t length = levada_number(at + 24, 4);
  batch->base_offset = levada_number(at, 8);
  batch->base_timestamp_ms = (int64_t)levada_number(at + 8, 8);
  batch->section.partition = (uint32_t)levada_number(at + 16, 4);
  batch->records_left = (uint32_t)levada_number(at + 20, 4);
  batch->append_time = at[28] == 1;
  if ((uint64_t)(batch->end - at) < 40 + topic_length + length) return !(batch->failed = true);
  batch->section.topic = (levada_bytes){at + 40, topic_length};
  batch->at = at + 40 + topic_length;
  batch->section_end = batch->at + length;
  batch->sections_left--;
  return true;
}

/* The next record; false at the end, and where the batch cannot be read, which `failed` tells. */
static inline bool levada_next(levada_batch *batch, levada_record *record) {
  while (batch->records_left == 0) {
    if (batch->sections_left == 0 || !levada_open_section(batch)) return false;
  }
  batch->records_left--;
  int64_t length = levada_varint(batch);
  if (batch->failed || length < 1 || length > batch->section_end - batch->at) return !(batch->failed = true);
  const uint8_t *next = batch->at + length;
  batch->at++;
  *record = batch->section;
  int64_t delta = levada_varint(batch);
  record->timestamp_ms = batch->base_timestamp_ms + (batch->append_time ? 0 : delta);
  record->offset = batch->base_offset + (uint64_t)levada_varint(batch);
  record->key = levada_part(batch);
  record->value = levada_part(batch);
  batch->at = next; /* The headers are between. */
  return !batch->failed;
}

static inline uint32_t levada_hex(const uint8_t *at, const uint8_t *end) {
  uint32_t unit = 0;
  for (int i = 0; i < 4 && at + i < end; i++) {
    uint32_t digit = at[i] | 0x20;
    unit = unit << 4 | ((digit <= '9' ? digit - '0' : digit - 'a' + 10) & 15);
  }
  return unit;
}

/* Reads the text of JSON, such as a config's, that begins with a quote at `at`. Its UTF-8 goes to `to`, which has room for
 * `end - at` bytes, and its length to `length`. Answers what comes behind it, or null where the text does not end. */
static inline const uint8_t *levada_text(const uint8_t *at, const uint8_t *end, uint8_t *to, size_t *length) {
  uint8_t *start = to;
  for (at++; at < end && *at != '"'; at++) {
    if (*at != '\\') {
      *to++ = *at;
      continue;
    }
    if (++at == end) break;
    const char *escapes = "b\bf\fn\nr\rt\t";
    const char *escape = *at ? strchr(escapes, *at) : NULL;
    if (*at != 'u') {
      *to++ = escape && (escape - escapes) % 2 == 0 ? (uint8_t)escape[1] : *at;
      continue;
    }
    uint32_t code = levada_hex(at + 1, end);
    at += end - at > 4 ? 4 : end - at - 1;
    if (code >= 0xd800 && code < 0xdc00 && end - at > 6 && at[1] == '\\' && at[2] == 'u') {
      code = 0x10000 + ((code & 0x3ff) << 10 | (levada_hex(at + 3, end) & 0x3ff));
      at += 6;
    }
    if (code < 0x80) {
      *to++ = (uint8_t)code;
      continue;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    *to++ = (uint8_t)(0xff << (7 - more) | code >> 6 * more);
    while (more-- > 0) *to++ = (uint8_t)(0x80 | (code >> 6 * more & 0x3f));
  }
  *length = (size_t)(to - start);
  return at < end ? at + 1 : NULL;
}

#endif
