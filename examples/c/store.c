/* A store in C: records, several writes in one commit, and a reading with its age.
 *
 *     cargo build --release -p punctual-c
 *     cc -I include -o store examples/c/store.c -L target/release -lpunctual && LD_LIBRARY_PATH=target/release ./store
 */
#include "punctual.h"
#include <stdio.h>
#include <stdlib.h>

static void check(enum punctual_code code) {
    if (code != PUNCTUAL_OK) {
        fprintf(stderr, "%s (code %d)\n", punctual_last_error(), (int)code);
        exit(1);
    }
}

int main(void) {
    const struct punctual_object battery = {.key = "battery", .key_len = 7, .valid_for = 200000000}; /* 200 ms */
    const struct punctual_options options = {.objects = &battery, .object_count = 1}; /* in memory: no folder */
    const struct punctual_write writes[] = {
        {.kind = PUNCTUAL_EXPECT, .key = "door", .key_len = 4, .value = "open", .value_len = 4},
        {.kind = PUNCTUAL_PUT, .key = "room/1", .key_len = 6, .value = "warm", .value_len = 4},
    };
    struct punctual_store *store;
    struct punctual_reading reading;
    struct punctual_rows *rows;
    double volts = 12.6;
    check(punctual_store_open(&options, sizeof options, &store));
    check(punctual_store_put(store, "door", 4, "open", 4));
    check(punctual_store_commit(store, writes, 2, 5000000, false)); /* both or none, in 5 ms if it can be */
    check(punctual_store_prefix(store, "room/", 5, 0, false, &rows));
    for (size_t at = 0; at < rows->count; at++)
        printf("%.*s: %.*s\n", (int)rows->row[at].key_len, (const char *)rows->row[at].key,
               (int)rows->row[at].value_len, (const char *)rows->row[at].value);
    punctual_rows_free(rows);
    check(punctual_store_offer(store, "battery", 7, &volts, sizeof volts, 0));
    check(punctual_store_read(store, "battery", 7, 0, &volts, sizeof volts, &reading));
    printf("battery: %.1f V, %s\n", volts, reading.fresh ? "fresh" : "stale");
    check(punctual_store_close(store));
}
