"""Gives the kernel in QEMU a processor that divides caches and bandwidth: gdb answers CPUID leaves 7, 0xf and 0x10 in its
place until the first process starts. The emulator drops writes to the registers behind them, so masks have no effect.

Variables: SOCKET; AT_CPUID, AT_INIT, AT_WRITE (addresses); PROCESSOR (a key of PROCESSORS); REGISTERS (a file): keeps
watching, and writes each value that reaches a register of a class there, a line each: number in hexadecimal, value.
"""
import os

import gdb

# Ways of L3, classes, whether masks may have holes, whether code and data can be apart, whether L3, L2 and bandwidth.
PROCESSORS = {
    "ways12": (12, 8, False, False, (True, False, True)),
    "holes16": (16, 16, True, True, (True, False, True)),
    "l2only": (8, 4, False, False, (False, True, False)),
}
WAYS, CLASSES, HOLES, APART, (L3, L2, BANDWIDTH) = PROCESSORS[os.environ["PROCESSOR"]]
# Monitoring ids, and bytes per unit of what they count.
IDS, UNIT = 32, 65536
CPUID, INIT, WRITE = (int(os.environ[name], 16) for name in ("AT_CPUID", "AT_INIT", "AT_WRITE"))
# Registers of the classes: masks of L3 and L2, delays of the bandwidth.
FIRST, LAST = 0xC90, 0xD8F


def answer(leaf, sub):
    """Registers eax, ebx, ecx and edx."""
    if leaf == 0xF:
        return {0: (0, IDS - 1, 0, 2), 1: (0, UNIT, IDS - 1, 7)}.get(sub, (0, 0, 0, 0))
    kinds = {
        0: (0, 2 * L3 | 4 * L2 | 8 * BANDWIDTH, 0, 0),
        1: (WAYS - 1, 0x3 << (WAYS - 2), 4 * APART | 8 * HOLES, CLASSES - 1) if L3 else None,
        2: (WAYS - 1, 0, 0, CLASSES - 1) if L2 else None,
        # Delays up to 90 %, linear.
        3: (89, 0, 4, CLASSES - 1) if BANDWIDTH else None,
    }
    return kinds.get(sub) or (0, 0, 0, 0)


def value(register):
    return int(gdb.parse_and_eval("$" + register)) & 0xFFFFFFFF


for line in ("pagination off", "confirm off", "architecture i386:x86-64"):
    gdb.execute("set " + line)
gdb.execute("target remote " + os.environ["SOCKET"])
gdb.execute(f"hbreak *{CPUID:#x}")
gdb.execute("continue")
code = bytes(gdb.selected_inferior().read_memory(CPUID, 128))
at = CPUID + code.index(b"\x0f\xa2")
gdb.execute("delete")
gdb.execute(f"hbreak *{at:#x}")
gdb.execute(f"hbreak *{INIT:#x}")
while True:
    gdb.execute("continue")
    if int(gdb.parse_and_eval("$pc")) & (1 << 64) - 1 == INIT:
        break
    leaf, sub = value("eax"), value("ecx")
    if leaf in (0xF, 0x10):
        for name, register in zip(("rax", "rbx", "rcx", "rdx"), answer(leaf, sub)):
            gdb.execute(f"set ${name} = {register}")
        gdb.execute(f"set $rip = {at + 2:#x}")
    elif leaf == 7 and sub == 0:
        gdb.execute("stepi")
        gdb.execute(f"set $rbx = {value('ebx') | 1 << 12 | 1 << 15}")
gdb.execute("delete")
if os.environ.get("REGISTERS"):
    gdb.execute(f"hbreak *{WRITE:#x} if (unsigned)$edi >= {FIRST} && (unsigned)$edi <= {LAST}")
    with open(os.environ["REGISTERS"], "w", buffering=1) as registers:
        while True:
            try:
                gdb.execute("continue")
                registers.write(f"{value('edi'):x} {value('esi'):x}\n")
            except gdb.error:
                break  # the machine is off
else:
    gdb.execute("detach")
