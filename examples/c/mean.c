/* A stage in C: makes of each frame of 16-bit samples the same sound without its slow part, so that a hum or an offset is
 * gone. It is a high-pass filter of the first order: what it keeps is the mean that it subtracts.
 *
 *     cc -shared -fPIC -O2 -I include -o mean.so examples/c/mean.c
 */
#include "punctual_stage.h"

struct mean {
    int64_t sum; /* 2^16 times the mean so far */
    uint64_t samples;
};

PUNCTUAL_STAGE(struct mean, 1)

void punctual_stage_begin(void *memory) {
    (void)memory; /* a mean of 0 */
}

/* The next sample: the mean moves by a 256th of what it is off. */
static int16_t without_mean(struct mean *mean, int16_t sample) {
    int32_t off = sample - (int32_t)(mean->sum / 65536);
    mean->sum += (int64_t)off * 256;
    mean->samples++;
    return (int16_t)(off > INT16_MAX ? INT16_MAX : off < INT16_MIN ? INT16_MIN : off);
}

int punctual_stage_step(void *memory, struct punctual_frames *frames) {
    struct mean *mean = memory;
    for (size_t number = 0; number < frames->count(frames, 0); number++) {
        struct punctual_head head;
        size_t bytes, room;
        const int16_t *in = frames->input(frames, 0, number, &bytes, &head);
        int16_t *out = frames->output(frames, 0, &room);
        if (in == NULL || out == NULL || room < bytes)
            return 1; /* the edge behind this stage has shorter frames */
        for (size_t at = 0; at < bytes / sizeof *in; at++)
            out[at] = without_mean(mean, in[at]);
        if (frames->make(frames, 0, bytes / sizeof *in * sizeof *in, &head) != 0)
            return 2;
    }
    return 0;
}
