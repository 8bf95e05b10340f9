/* A stage of a punctual pipeline, in C or any language that makes shared libraries with C functions.
 *
 * A stage takes frames, makes frames and keeps a state. The state is one block of bytes of a declared size: punctual
 * saves it when a step is committed, so that another process can go on from there after a move, a crash or an upgrade.
 *
 *     cc -shared -fPIC -O2 -I include -o mean.so mean.c
 *
 * The functions below without a body are the stage's: the library defines all of them but punctual_stage_convert, which
 * it may leave out. docs/guide/pipelines.md, "A stage in C", has an example and how to run it.
 *
 * Ownership. All memory belongs to punctual: the state until the stage's process ends, frames until
 * punctual_stage_step returns. A step keeps no pointer to a frame.
 *
 * Alignment. The state and the content of every frame begin at multiples of 64 bytes.
 *
 * Threads and processes. One thread calls these functions, one after the other. The library is loaded in a process that
 * forks: it starts no threads, opens nothing that two processes cannot share, and keeps nothing that changes outside of
 * the state. The state holds no pointers: another process goes on with its bytes.
 *
 * What a step must not do. A step that is not committed, because its process died, is carried out again with the same
 * frames and the same state. So it depends on these alone, has no effect outside of them, does not wait for anything,
 * and does not call exit, longjmp out or throw. It should allocate nothing.
 */
#ifndef PUNCTUAL_STAGE_H
#define PUNCTUAL_STAGE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Of this header. A library that was built with another one is refused. */
#define PUNCTUAL_STAGE_ABI_VERSION 1

/* What comes with the content of a frame. Times are nanoseconds of CLOCK_MONOTONIC; 0: not known. */
struct punctual_head {
    uint64_t sequence;    /* its number in the order in which the source made frames, from 0 */
    uint64_t captured_at; /* when the source got what it is made from */
    uint64_t due_by;      /* when it is to be delivered */
};

/* The frames that a step takes, and room for those that it makes. Ports and frames are counted from 0. */
struct punctual_frames {
    size_t inputs;
    size_t outputs;
    void *punctual; /* not for the stage */

    /* How many frames of an input this step takes: as many as the graph says, fewer at the end of the stream. */
    size_t (*count)(const struct punctual_frames *frames, size_t input);

    /* The content of a frame, its length in *bytes, and what comes with it in *head (either may be NULL). NULL where
     * this step has no such frame. */
    const void *(*input)(const struct punctual_frames *frames, size_t input, size_t number, size_t *bytes,
                         struct punctual_head *head);

    /* Room for the next frame of an output, its length in *bytes (which may be NULL); its content has no meaning yet,
     * and is not to be read. NULL where there is no such output, or this step has made all of its frames. */
    void *(*output)(struct punctual_frames *frames, size_t output, size_t *bytes);

    /* Makes a frame of the first `bytes` bytes of that room. 0; -1 where there is no room, or the frame is longer. */
    int (*make)(struct punctual_frames *frames, size_t output, size_t bytes, const struct punctual_head *head);

    /* Tells that no step will follow this one. */
    void (*end)(struct punctual_frames *frames);
};

/* PUNCTUAL_STAGE_ABI_VERSION, as the library was built with it. */
uint32_t punctual_stage_abi_version(void);

/* The length of the state, in bytes: the same at every call. 0 for none. */
size_t punctual_stage_state_bytes(void);

/* The version of the state's meaning: another number whenever that changes. */
uint32_t punctual_stage_state_version(void);

/* Makes the state before the first frame of `state`, which is all zero. */
void punctual_stage_begin(void *state);

/* One step. 0; any other number where the stage cannot go on: the pipeline ends and tells it. */
int punctual_stage_step(void *state, struct punctual_frames *frames);

/* Optional: makes `state`, which is all zero, of the `bytes` bytes that a stage of another version has left. 0; any other
 * number refuses them, and the stage that has them goes on. Without this function, other versions are refused. */
int punctual_stage_convert(uint32_t version, const void *old, size_t bytes, void *state);

/* The three functions that every stage has alike. */
#define PUNCTUAL_STAGE(state_type, version)                                      \
    uint32_t punctual_stage_abi_version(void) { return PUNCTUAL_STAGE_ABI_VERSION; } \
    size_t punctual_stage_state_bytes(void) { return sizeof(state_type); }       \
    uint32_t punctual_stage_state_version(void) { return (version); }

#ifdef __cplusplus
}
#endif

#endif
