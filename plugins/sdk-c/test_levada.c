/* Reads a line of hex from standard input and prints what levada.h reads of it: as a batch, a line for each record and whether it
 * could be read, or with an argument as a text of JSON. For test_levada.py. */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "levada.h"

static void print(levada_bytes bytes) {
  if (!bytes.ptr) printf(" null");
  else putchar(' ');
  for (size_t at = 0; bytes.ptr && at < bytes.len; at++) printf("%02x", bytes.ptr[at]);
}

int main(int count, char **arguments) {
  /* As large as it must be and no larger, so that a read beyond it is found. */
  size_t length = 0;
  uint8_t *bytes = malloc(1 << 20);
  while (scanf("%2hhx", &bytes[length]) == 1) length++;
  bytes = realloc(bytes, length + !length);
  if (count > 1 && arguments) {
    uint8_t *text = malloc(length + !length);
    size_t text_length = 0;
    const uint8_t *rest = levada_text(bytes, bytes + length, text, &text_length);
    printf("%d", rest ? (int)(rest - bytes) : -1);
    print((levada_bytes){text, text_length});
    printf("\n");
    free(text);
  } else {
    levada_batch batch;
    levada_record record;
    levada_open(&batch, bytes, length);
    while (!batch.failed && levada_next(&batch, &record)) {
      printf("%.*s %" PRIu32 " %" PRIu64 " %" PRId64, (int)record.topic.len, (const char *)record.topic.ptr, record.partition,
             record.offset, record.timestamp_ms);
      print(record.key);
      print(record.value);
      printf("\n");
    }
    printf("%s %" PRId64 " %" PRIu64 "\n", batch.failed ? "failed" : "read", batch.time_ms, batch.seed);
  }
  free(bytes);
}
