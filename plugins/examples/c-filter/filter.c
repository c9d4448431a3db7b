/* Keeps records whose value contains a text, JSON or not. */

#include <stdlib.h>
#include <string.h>

#include "bindings/transform_module.h"
#include "levada.h"

static uint8_t *wanted;
static size_t wanted_length;

void exports_levada_plugin_module_describe(exports_levada_plugin_module_description_t *description) {
  description->layout_version = 1;
  description->fields = LEVADA_PLUGIN_TYPES_FIELDS_VALUE;
  description->state_version = 0;
  description->config_schema.is_some = true;
  transform_module_string_dup(&description->config_schema.val,
                              "{\"type\":\"object\",\"properties\":{\"contains\":{\"type\":\"string\",\"minLength\":1}},"
                              "\"required\":[\"contains\"],\"additionalProperties\":false}");
}

/* The broker has checked the config against the schema: each text that is no name is a value of `contains`, and where it is
 * there several times the last one counts, as it does for the schema. */
bool exports_levada_plugin_module_init(transform_module_string_t *config, transform_module_string_t *error) {
  const uint8_t *at = config->ptr, *end = config->ptr + config->len;
  wanted = malloc(config->len);
  while (wanted && at && (at = memchr(at, '"', (size_t)(end - at)))) {
    at = levada_text(at, end, wanted, &wanted_length);
    at = at ? memchr(at, '"', (size_t)(end - at)) : NULL;
    at = at ? levada_text(at, end, wanted, &wanted_length) : NULL;
  }
  transform_module_string_free(config);
  if (wanted_length > 0) return true;
  transform_module_string_dup(error, "contains is a text");
  return false;
}

static bool contains(levada_bytes value) {
  for (size_t at = 0; at + wanted_length <= value.len; at++) {
    if (memcmp(value.ptr + at, wanted, wanted_length) == 0) return true;
  }
  return false;
}

/* The places that are kept grow in `kept`, which the bindings free. */
static bool keep(uint32_t place, size_t *room, transform_module_list_u32_t *kept) {
  if (kept->len == *room) {
    *room = *room ? 2 * *room : 64;
    uint32_t *grown = realloc(kept->ptr, *room * sizeof *grown);
    if (!grown) return false;
    kept->ptr = grown;
  }
  kept->ptr[kept->len++] = place;
  return true;
}

bool exports_levada_plugin_transform_transform(transform_module_list_u8_t *bytes,
                                               exports_levada_plugin_transform_verdicts_t *verdicts,
                                               exports_levada_plugin_transform_fault_t *fault) {
  levada_batch batch;
  levada_record record;
  transform_module_list_u32_t kept = {NULL, 0};
  size_t room = 0;
  levada_open(&batch, bytes->ptr, bytes->len);
  for (uint32_t place = 0; !batch.failed && levada_next(&batch, &record); place++) {
    if (contains(record.value) && !keep(place, &room, &kept)) abort();
  }
  transform_module_list_u8_free(bytes);
  if (batch.failed) {
    free(kept.ptr);
    fault->tag = LEVADA_PLUGIN_TYPES_FAULT_FAILED;
    transform_module_string_dup(&fault->val.failed, "the batch cannot be read");
    return false;
  }
  verdicts->tag = EXPORTS_LEVADA_PLUGIN_TRANSFORM_VERDICTS_KEEP;
  verdicts->val.keep = kept;
  return true;
}
