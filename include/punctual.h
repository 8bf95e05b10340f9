/* The store of punctual: records and values of sensors, with deadlines, ages and watches. For C11 or C++17, on Linux.
 *
 *     cc -I include -o store store.c -L target/release -lpunctual
 *
 * docs/guide/store.md says what the store promises, examples/c/store.c is a program. This file is made of the library's
 * source (crates/c/cbindgen.toml).
 *
 * Results. Functions return a code; punctual_last_error has the text. Results are written to addresses that the caller
 * passes. Times are spans in nanoseconds. Keys and values are bytes with a length, and may contain zeroes.
 *
 * Threads. Any thread may call any function, with the same handles. One thread at a time waits on a watch. A store may
 * be closed while others use it: calls under way end first, later ones get PUNCTUAL_CLOSED. A write waits at most a
 * second for others (PUNCTUAL_LATE). Handlers of signals must not call the library.
 *
 * Processes. One process has a store open, and by one copy of this library (punctual_store_open says why). A child of
 * fork() gets PUNCTUAL_FORKED for its parent's handles.
 *
 * Memory. Keys, values and arrays belong to the caller, and are not kept after the call; what they point to must be
 * readable. Only punctual_rows_free frees what the library made.
 */

#ifndef PUNCTUAL_H
#define PUNCTUAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Durability: a write that has returned survives a power cut (docs/guide/store.md).
#define PUNCTUAL_DURABLE 0

// Durability: it survives one once another write, or a flush, has returned.
#define PUNCTUAL_NO_META_SYNC 1

// Durability: it survives the process; the machine's end may destroy the store.
#define PUNCTUAL_VOLATILE 2

// Write: sets the record to the value.
#define PUNCTUAL_PUT 0

// Write: removes the record, if it is there.
#define PUNCTUAL_DELETE 1

// Write: changes nothing; the commit is refused unless the record, or object, has this value.
#define PUNCTUAL_EXPECT 2

// Write: changes nothing; the commit is refused if the record is there, or the object has a value.
#define PUNCTUAL_EXPECT_NONE 3

// Change: a record was set, to a new value or the same.
#define PUNCTUAL_CHANGE_PUT 0

// Change: a record was removed.
#define PUNCTUAL_CHANGE_DELETED 1

// Change: a record was removed because its life had ended.
#define PUNCTUAL_CHANGE_EXPIRED 2

// Change: a record has another life, or none any more; `number` is 1 if it will expire, else 0.
#define PUNCTUAL_CHANGE_LIFE 3

// Change: a temporal object has a new reading; `number` is that of `struct punctual_reading`.
#define PUNCTUAL_CHANGE_READING 4

// Change: `number` changes came faster than they were taken, so read all that is watched again. Without a key.
#define PUNCTUAL_CHANGE_MISSED 5

// Result of a call; `punctual_last_error` has the text of all but PUNCTUAL_OK.
enum punctual_code {
    // The call has done what it says.
    PUNCTUAL_OK = 0,
    // There is no such record, or no reading yet.
    PUNCTUAL_NOT_FOUND = 1,
    // Nothing has changed until the time-out.
    PUNCTUAL_TIMEOUT = 2,
    // The value does not fit into the caller's memory; its length was written.
    PUNCTUAL_TOO_SHORT = 3,
    // A NULL pointer, or a number that is out of range.
    PUNCTUAL_ARGUMENT = 4,
    // The handle was closed, or is none.
    PUNCTUAL_CLOSED = 5,
    // Another thread waits on this watch.
    PUNCTUAL_BUSY = 6,
    // No record, or no object, can have this key.
    PUNCTUAL_KEY = 7,
    // The value is longer than its record or object allows.
    PUNCTUAL_VALUE = 8,
    // A record was named where a temporal object is needed, or the other way round.
    PUNCTUAL_KIND = 9,
    // A record is not as the commit expects: nothing has changed.
    PUNCTUAL_CONFLICT = 10,
    // The firm deadline has passed, or the write lock was not free in time: nothing has changed.
    PUNCTUAL_LATE = 11,
    // Quota or disk are full: nothing has changed, deletes succeed.
    PUNCTUAL_FULL = 12,
    // More handles, watches, threads or bytes than there may be.
    PUNCTUAL_LIMIT = 13,
    // Another process, or this one, has the store open.
    PUNCTUAL_IN_USE = 14,
    // A setting is refused.
    PUNCTUAL_SETTING = 15,
    // The store is damaged.
    PUNCTUAL_DAMAGED = 16,
    // The folder holds a store of another format.
    PUNCTUAL_FORMAT = 17,
    // The operating system refuses the files, or failed.
    PUNCTUAL_IO = 18,
    // The store belongs to the process from which this one was forked.
    PUNCTUAL_FORKED = 19,
    // Another failure of the store.
    PUNCTUAL_FAILED = 20,
    // A fault of the library; the call may be half done.
    PUNCTUAL_PANIC = 21,
};

// An open store, one of at most 1024. Its functions may be called by any number of threads.
struct punctual_store;

// An open watch, one of at most 1024, and 64 of a store. One thread waits on it at a time; any may close it meanwhile.
struct punctual_watch;

// A temporal object: a value that a sensor reports, and that has an age. A field that is 0 has its default; one of
// `valid_for` and `period` is needed.
struct punctual_object {
    // Key of the object.
    const void *key;
    // Bytes of the key, 1 to 511.
    size_t key_len;
    // Nanoseconds for which a reading is fresh; 0: two periods.
    uint64_t valid_for;
    // Nanoseconds between two readings; 0: half of `valid_for`.
    uint64_t period;
    // Longest value in bytes; 0: 8, for a double.
    size_t max_len;
    // Number of last values that are kept in memory; 0: the latest.
    size_t history;
};

// Settings of a store. A field that is 0 has its default.
struct punctual_options {
    // Folder of the store, made if it is missing; NULL: a store in memory, which takes neither of the next two.
    const char *folder;
    // PUNCTUAL_DURABLE, PUNCTUAL_NO_META_SYNC or PUNCTUAL_VOLATILE.
    uint32_t durability;
    // Most bytes that puts take in the file, at least 1 MiB; 0: 1 GiB.
    uint64_t quota;
    // The temporal objects, `object_count` of them.
    const struct punctual_object *objects;
    // Number of temporal objects.
    size_t object_count;
};

// A write in a commit.
struct punctual_write {
    // PUNCTUAL_PUT, PUNCTUAL_DELETE, PUNCTUAL_EXPECT or PUNCTUAL_EXPECT_NONE.
    uint32_t kind;
    // Key of the record, or of the object.
    const void *key;
    // Bytes of the key, 1 to 511; 480 with a life.
    size_t key_len;
    // The value, of a put and of an expectation.
    const void *value;
    // Bytes of the value, at most 1 GiB.
    size_t value_len;
    // Nanoseconds after which a record that is put is gone; 0: it stays.
    uint64_t life;
};

// A record, or a reading of a history.
struct punctual_row {
    // The key, not NULL; empty in a history.
    const void *key;
    // Bytes of the key.
    size_t key_len;
    // The value, not NULL.
    const void *value;
    // Bytes of the value.
    size_t value_len;
    // Age of a reading in nanoseconds; UINT64_MAX: unknown, or none.
    uint64_t age;
};

// Records of one commit, or a history. `punctual_rows_free` frees it.
struct punctual_rows {
    // How many rows there are.
    size_t count;
    // The rows, in order.
    const struct punctual_row *row;
    // All values, one behind the other in the order of the rows: an array if all have one length.
    const void *values;
    // Bytes of all values.
    size_t values_len;
};

// A value of a temporal object.
struct punctual_reading {
    // Bytes of the value.
    size_t len;
    // Nanoseconds since it was sampled; UINT64_MAX: unknown, after a restart of the machine.
    uint64_t age;
    // Number of the reading, from 1 in each run; 0: kept from an earlier run.
    uint64_t number;
    // Whether it is not older than asked for.
    bool fresh;
};

// Figures of a store since it was opened.
struct punctual_figures {
    // Number of temporal objects.
    uint64_t objects;
    // Share of them whose value is fresh now, 0 to 1.
    double fresh_share;
    // Readings that were offered and not refused.
    uint64_t offered;
    // Readings whose values reached the store.
    uint64_t installed;
    // Readings that a newer one of their object has overtaken.
    uint64_t superseded;
    // Most bytes of the file; 0: no bound.
    uint64_t quota;
    // Bytes that the file takes.
    uint64_t taken;
    // Bytes of it with records.
    uint64_t data;
    // Snapshots that are open.
    uint64_t readers;
    // Snapshots that were ended because they stood in the way of writers.
    uint64_t readers_ended;
};

// A change. It has no value: read the record, and see this change or a newer one.
struct punctual_change {
    // PUNCTUAL_CHANGE_PUT, or another one of these.
    uint32_t kind;
    // Bytes of the key.
    uint32_t key_len;
    // As the kind says; else 0.
    uint64_t number;
    // Key of the record, or of the object: `key_len` bytes, without a zero behind them.
    uint8_t key[512];
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Text of this thread's last failure, in UTF-8: what was refused, and the remedy. Empty before the first one. Valid
// until the thread's next failure or its end; not to be freed.
const char *punctual_last_error(void);

// Text of this thread's last failure, as `punctual_last_error`, which is forgotten: the one before is the last again.
// For interpreters, where a handler of signals may call the library between a failure and the question for its text.
const char *punctual_take_error(void);

// Version of the library, such as "0.1.0".
const char *punctual_version(void);

// Opens a store. `size` is `sizeof(struct punctual_options)`. One process has a store in a folder open at a time. The
// opening reads each page of the file, to find damage. While it is open, its process must not open, copy or delete the
// files in its folder, nor load a second copy of this library: each removes the lock that keeps other processes out.
enum punctual_code punctual_store_open(const struct punctual_options *options,
                                       size_t size,
                                       struct punctual_store **store);

// Closes a store: waits for calls under way in other threads, as long as the longest of them, writes the readings that
// were not written yet, and ends its watches. The store is closed whatever the answer; NULL is allowed. Not to be
// called by a handler of signals, which would wait for the call that it interrupts.
enum punctual_code punctual_store_close(struct punctual_store *store);

// Writes the readings that have come since the last flush to the file, and makes all writes durable. To be called some
// times a second where readings matter after a kill. A volatile store answers PUNCTUAL_SETTING, after the writing.
enum punctual_code punctual_store_flush(struct punctual_store *store);

// Sets a record, in a commit of its own.
enum punctual_code punctual_store_put(struct punctual_store *store,
                                      const void *key,
                                      size_t key_len,
                                      const void *value,
                                      size_t value_len);

// Removes a record, in a commit of its own; PUNCTUAL_NOT_FOUND if there is none.
enum punctual_code punctual_store_delete(struct punctual_store *store, const void *key, size_t key_len);

// Copies the value of a record or a temporal object to `value`, of `room` bytes, and its length to `value_len`.
// PUNCTUAL_NOT_FOUND if there is none: the length is 0; PUNCTUAL_TOO_SHORT if it is longer: only the length was
// written.
enum punctual_code punctual_store_get(struct punctual_store *store,
                                      const void *key,
                                      size_t key_len,
                                      void *value,
                                      size_t room,
                                      size_t *value_len);

// Carries out all writes, in their order, in one commit, or none: an expectation that does not hold answers
// PUNCTUAL_CONFLICT. `due_in`: nanoseconds until it should be done, before writers with later deadlines; 0: behind all
// that have one. With `firm`, which needs a `due_in`, the commit is refused after that (PUNCTUAL_LATE).
enum punctual_code punctual_store_commit(struct punctual_store *store,
                                         const struct punctual_write *writes,
                                         size_t count,
                                         uint64_t due_in,
                                         bool firm);

// Copies the records of one commit from `low` to before `high`, temporal objects among them, in the order of keys, or
// from the end with `reverse`. A bound that is NULL: without one. `limit`: most records; 0: all, of at most 1 GiB.
// `punctual_rows_free` frees `rows`.
enum punctual_code punctual_store_range(struct punctual_store *store,
                                        const void *low,
                                        size_t low_len,
                                        const void *high,
                                        size_t high_len,
                                        size_t limit,
                                        bool reverse,
                                        struct punctual_rows **rows);

// Copies the records of one commit whose keys begin with `prefix`, as `punctual_store_range` does.
enum punctual_code punctual_store_prefix(struct punctual_store *store,
                                         const void *prefix,
                                         size_t prefix_len,
                                         size_t limit,
                                         bool reverse,
                                         struct punctual_rows **rows);

// Offers a reading of a temporal object, which is in memory when the call returns: it touches no disk and waits for no
// transaction. `age`: nanoseconds since it was sampled, at most the machine's uptime; 0: now. To be offered in the
// order of sampling: the reading that was offered last is the latest.
enum punctual_code punctual_store_offer(struct punctual_store *store,
                                        const void *key,
                                        size_t key_len,
                                        const void *value,
                                        size_t value_len,
                                        uint64_t age);

// Copies the latest value of a temporal object to `value`, of `room` bytes, and writes to `reading` how old it is:
// fresh if at most `max_age` nanoseconds; 0: as long as the object is valid. It takes no lock of the store and makes
// no system call. PUNCTUAL_NOT_FOUND before the first reading; PUNCTUAL_TOO_SHORT after writing `reading` alone.
enum punctual_code punctual_store_read(struct punctual_store *store,
                                       const void *key,
                                       size_t key_len,
                                       uint64_t max_age,
                                       void *value,
                                       size_t room,
                                       struct punctual_reading *reading);

// Copies the last values of a temporal object, the oldest first, as they were at one instant: as many as its `history`
// says. `punctual_rows_free` frees `rows`.
enum punctual_code punctual_store_history(struct punctual_store *store,
                                          const void *key,
                                          size_t key_len,
                                          struct punctual_rows **rows);

// Writes the figures of a store. `size` is `sizeof(struct punctual_figures)`. Takes time in proportion to the free
// pages of the file: for some times a second.
enum punctual_code punctual_store_figures(struct punctual_store *store,
                                          struct punctual_figures *figures,
                                          size_t size);

// Frees rows; NULL is allowed. To be called once, and with rows of this library only.
void punctual_rows_free(struct punctual_rows *rows);

// Begins a watch of `key`, or of all keys that begin with it. Up to `capacity` changes wait to be taken, 1 to 65536 of
// records and as many of objects; others are counted as missed. Threads that write never wait for a watch.
enum punctual_code punctual_store_watch(struct punctual_store *store,
                                        const void *key,
                                        size_t key_len,
                                        bool prefix,
                                        size_t capacity,
                                        struct punctual_watch **watch);

// Waits for the next change, at most `timeout` nanoseconds (PUNCTUAL_TIMEOUT); 0: not at all, UINT64_MAX: without
// bound. A signal does not end the wait. PUNCTUAL_CLOSED once watch or store are closed, whichever thread does so.
enum punctual_code punctual_watch_next(struct punctual_watch *watch,
                                       uint64_t timeout,
                                       struct punctual_change *change);

// Ends a watch, and the wait of another thread on it. NULL is allowed.
enum punctual_code punctual_watch_close(struct punctual_watch *watch);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* PUNCTUAL_H */
