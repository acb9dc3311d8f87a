/* What main.c needs of a machine. */
#ifndef PLATFORM_H
#define PLATFORM_H

void put(const char *text);       /* print */
unsigned long instructions(void); /* counter of instructions; 0 where there is none */
void leave(void);                 /* end the program */

#endif
