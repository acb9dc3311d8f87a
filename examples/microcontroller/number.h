/* Print a number with words around it. */
#ifndef NUMBER_H
#define NUMBER_H

#include "platform.h"

static void put_number(const char *before, long value, const char *after)
{
    char text[24];
    int at = sizeof text - 1, negative = value < 0;
    unsigned long left = negative ? 0UL - (unsigned long)value : (unsigned long)value;
    text[at] = 0;
    do
        text[--at] = (char)('0' + left % 10);
    while (left /= 10);
    if (negative) text[--at] = '-';
    put(before);
    put(text + at);
    put(after);
}

#endif
