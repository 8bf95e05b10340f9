/* Walks and ends, with no library and no loader around it: what it does depends on nothing but itself. */
#include <stdint.h>

#define LINE_BYTES 64

static volatile unsigned char field[24576 * LINE_BYTES] __attribute__((aligned(1 << 21)));

static _Noreturn void end(void)
{
#if defined(__x86_64__)
    __asm__ volatile("syscall" : : "a"(231L), "D"(0L));
#elif defined(__aarch64__)
    register long number __asm__("x8") = 94, code __asm__("x0") = 0;
    __asm__ volatile("svc 0" : : "r"(number), "r"(code));
#elif defined(__riscv)
    register long number __asm__("a7") = 94, code __asm__("a0") = 0;
    __asm__ volatile("ecall" : : "r"(number), "r"(code));
#endif
    for (;;)
        ;
}

void _start(void)
{
    uint64_t drawn = 1;
    for (long access = 0; access < 400000; access++) {
        drawn = drawn * 6364136223846793005u + 1442695040888963407u;
        /* Two bytes wherever they begin: some lie across two lines. */
        *(volatile uint16_t *)(field + (drawn >> 33) % (sizeof field - 1)) += 1;
    }
    end();
}
