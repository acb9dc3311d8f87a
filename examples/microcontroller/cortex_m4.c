/* Start of a Cortex-M4, and output through the debugger (semihosting), as QEMU's board mps2-an386 has them. */
#include "platform.h"

#include <stdint.h>
#include <string.h>

extern uint32_t _data_from, _data, _data_end, _bss, _bss_end, _stack;
int main(void);
void start(void);

__attribute__((section(".vectors"), used)) static const void *const vectors[] = {&_stack, (const void *)start};

static int call(int operation, const void *argument)
{
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

#define REGISTER(address) (*(volatile uint32_t *)(address))

void put(const char *text) { call(0x04, text); }

unsigned long instructions(void)
{
    /* SysTick counts down at 25 MHz. QEMU runs an instruction in 1 ns (-icount shift=0), so 40 of them a tick. */
    return 40UL * (0xffffffUL - REGISTER(0xe000e018));
}

void leave(void) { call(0x18, (const void *)0x20026); }

void start(void)
{
    REGISTER(0xe000ed88) |= 0xf << 20; /* the floating-point unit */
    memcpy(&_data, &_data_from, (size_t)((char *)&_data_end - (char *)&_data));
    memset(&_bss, 0, (size_t)((char *)&_bss_end - (char *)&_bss));
    REGISTER(0xe000e014) = 0xffffff;
    REGISTER(0xe000e018) = 0;
    REGISTER(0xe000e010) = 5;
    main();
    for (;;) leave();
}
