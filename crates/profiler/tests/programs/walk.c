/* Touches lines of a field in an order that the test knows: first few of them, then all. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define LINE_BYTES 64

static volatile unsigned char field[24576 * LINE_BYTES] __attribute__((aligned(1 << 21)));
static uint64_t drawn = 1;

static void walk(long accesses, uint64_t lines)
{
    while (accesses-- > 0) {
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        field[(drawn >> 33) % lines * LINE_BYTES]++;
    }
}

int main(int count, char **arguments)
{
    long accesses = count > 1 ? atol(arguments[1]) : 0;
    walk(accesses, 4096);
    walk(accesses, 24576);
    puts("walked");
    return count > 2 ? atoi(arguments[2]) : 0;
}
