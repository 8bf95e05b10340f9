/* Four threads at once, each with a part of the field to itself. */
#include <pthread.h>
#include <stdint.h>

#define LINE_BYTES 64
#define LINES 8192

static volatile unsigned char field[4][LINES * LINE_BYTES] __attribute__((aligned(1 << 21)));

static void *sweep(void *part)
{
    for (int round = 0; round < 20; round++)
        for (long line = 0; line < LINES; line++)
            field[(intptr_t)part][line * LINE_BYTES]++;
    return 0;
}

int main(void)
{
    pthread_t threads[4];
    for (intptr_t part = 0; part < 4; part++)
        pthread_create(&threads[part], 0, sweep, (void *)part);
    for (int part = 0; part < 4; part++)
        pthread_join(threads[part], 0);
    return 0;
}
