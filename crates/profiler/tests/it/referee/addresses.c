/*
 * Writes down what a program does, as QEMU's user-mode emulation tells it: a word for each instruction, load and store, in order.
 *
 * A plugin apart from the profiler's: no line, block or cache in it. It declares the few functions of QEMU's plugin interface that it
 * calls, so that a C compiler is all it needs. A word is address << 16 | bytes << 8 | kind, the kind being 0 for an instruction, 1 for
 * a load or a store. For one thread and no children.
 *
 *     cc -O2 -shared -fPIC -DINTERFACE=1 -o addresses.so addresses.c      (INTERFACE=2 for QEMU from 9.0 on)
 *     qemu-x86_64 -plugin ./addresses.so,out=FILE PROGRAM ARGS
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#ifndef INTERFACE
#define INTERFACE 1
#endif

extern void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*call)(uint64_t id, void *block));
extern void qemu_plugin_register_atexit_cb(uint64_t id, void (*call)(uint64_t id, void *word), void *word);
extern void qemu_plugin_register_vcpu_insn_exec_cb(void *instruction, void (*call)(unsigned vcpu, void *word), int flags, void *word);
extern void qemu_plugin_register_vcpu_mem_cb(void *instruction, void (*call)(unsigned vcpu, uint32_t kind, uint64_t address, void *word),
                                             int flags, int loads_and_stores, void *word);
extern size_t qemu_plugin_tb_n_insns(const void *block);
extern void *qemu_plugin_tb_get_insn(const void *block, size_t number);
extern uint64_t qemu_plugin_insn_vaddr(const void *instruction);
extern size_t qemu_plugin_insn_size(const void *instruction);
extern unsigned qemu_plugin_mem_size_shift(uint32_t kind);

__attribute__((visibility("default"))) int qemu_plugin_version = INTERFACE;

static int out = -1;
static uint64_t words[1 << 16];
static size_t held;

static void flush(void)
{
    const char *from = (const char *)words;
    for (size_t left = held * sizeof words[0]; left > 0;) {
        ssize_t written = write(out, from, left);
        if (written <= 0)
            _exit(9); /* Half a trace is none. */
        from += written;
        left -= written;
    }
    held = 0;
}

static void put(uint64_t word)
{
    words[held++] = word;
    if (held == sizeof words / sizeof words[0])
        flush();
}

static void on_instruction(unsigned vcpu, void *word)
{
    (void)vcpu;
    put((uintptr_t)word);
}

static void on_access(unsigned vcpu, uint32_t kind, uint64_t address, void *word)
{
    (void)vcpu, (void)word;
    put(address << 16 | (uint64_t)1 << (qemu_plugin_mem_size_shift(kind) + 8) | 1);
}

static void on_translation(uint64_t id, void *block)
{
    (void)id;
    for (size_t number = 0; number < qemu_plugin_tb_n_insns(block); number++) {
        void *instruction = qemu_plugin_tb_get_insn(block, number);
        uint64_t word = qemu_plugin_insn_vaddr(instruction) << 16 | qemu_plugin_insn_size(instruction) << 8;
        qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_instruction, 0, (void *)(uintptr_t)word);
        qemu_plugin_register_vcpu_mem_cb(instruction, on_access, 0, 3, NULL);
    }
}

static void on_exit_of_program(uint64_t id, void *word)
{
    (void)id, (void)word;
    flush();
}

__attribute__((visibility("default"))) int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments)
{
    (void)info;
    if (count != 1 || strncmp(arguments[0], "out=", 4) != 0)
        return 1;
    int file = open(arguments[0] + 4, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    /* Where no program that opens a few files comes across it. */
    out = fcntl(file, F_DUPFD_CLOEXEC, 500);
    close(file);
    if (out < 0)
        return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, on_exit_of_program, NULL);
    return 0;
}
