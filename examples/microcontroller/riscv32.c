/* Start of a 32-bit RISC-V with a floating-point unit, and output through semihosting, as QEMU's board virt has them. */
#include "platform.h"

int main(void);

__attribute__((naked, section(".start"), used)) void start(void)
{
    __asm__ volatile("la sp, _stack\n"
                     "li t0, 0x6000\n" /* the floating-point unit */
                     "csrs mstatus, t0\n"
                     "la t0, _bss\n"
                     "la t1, _bss_end\n"
                     "1: bgeu t0, t1, 2f\n"
                     "sw zero, 0(t0)\n"
                     "addi t0, t0, 4\n"
                     "j 1b\n"
                     "2: call main\n"
                     "3: j 3b\n");
}

__attribute__((noinline)) static long call(long operation, const void *argument)
{
    register long a0 __asm__("a0") = operation;
    register const void *a1 __asm__("a1") = argument;
    __asm__ volatile(".balign 16\n"
                     ".option push\n"
                     ".option norvc\n"
                     "slli zero, zero, 0x1f\n"
                     "ebreak\n"
                     "srai zero, zero, 7\n"
                     ".option pop\n"
                     : "+r"(a0)
                     : "r"(a1)
                     : "memory");
    return a0;
}

void put(const char *text) { call(0x04, text); }

unsigned long instructions(void)
{
    unsigned long count;
    __asm__ volatile("csrr %0, minstret" : "=r"(count));
    return count;
}

void leave(void) { call(0x18, (const void *)0x20026); }
