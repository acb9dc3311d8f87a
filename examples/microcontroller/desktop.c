#include "platform.h"

#include <stdio.h>

void put(const char *text) { fputs(text, stdout); }
unsigned long instructions(void) { return 0; }
void leave(void) {}
