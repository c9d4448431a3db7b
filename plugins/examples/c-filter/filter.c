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
                              "{\"type\":\"object\",\"properties\":{\"contains\":{\"type\":\"string\",\"minLength\":1,"
                              "\"pattern\":\"^[^\\\"\\\\\\\\]+$\"}},\"required\":[\"contains\"],"
                              "\"additionalProperties\":false}");
}

/* The config is {"contains":"text"}, which the broker has checked against the schema: one member, a text without escapes. So
 * the text is what stands between the third quote and the fourth. */
bool exports_levada_plugin_module_init(transform_module_string_t *config, transform_module_string_t *error) {
  const uint8_t *at = config->ptr, *end = config->ptr + config->len, *start = NULL;
  for (int quotes = 0; at < end && quotes < 4; at++) {
    if (*at != '"') continue;
    if (++quotes == 3) start = at + 1;
    if (quotes == 4) {
      wanted_length = (size_t)(at - start);
      wanted = malloc(wanted_length);
      memcpy(wanted, start, wanted_length);
    }
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
