/* Predict a number from the rows in stream_rows.h and learn it, one row after another, as a sensor would bring them. */
#include "number.h"
#include "platform.h"
#include "stream.h"

#include "stream_rows.h"

static stream ctx;

int main(void)
{
    const int count = sizeof rows / sizeof rows[0];
    double x[STREAM_INPUTS], output[STREAM_OUTPUTS] = {0}, surprise, error = 0;
    unsigned long spent = 0;
    int labels = 0;
    stream_init(&ctx);
    for (int t = 0; t < count; ++t)
    {
        for (int column = 0; column < STREAM_INPUTS; ++column) x[column] = (double)rows[t][column];
        const double label = (double)rows[t][STREAM_INPUTS];
        const unsigned long before = instructions();
        stream_step(&ctx, x, &label, output, &surprise);
        spent = instructions() - before;
        if (label == label) error += fabs(output[0] - label), ++labels; /* the answer from before the update */
        if (t % 1000 == 999 || t == count - 1)
        {
            put_number("row ", t + 1, ": ");
            put_number("mean absolute error in thousandths ", (long)(1000 * error / (labels ? labels : 1)), "\n");
            error = labels = 0;
        }
    }
    put_number("bytes of the context: ", (long)sizeof ctx, "\n");
    if (spent) put_number("instructions of a row: ", (long)spent, "\n");
    leave();
    return 0;
}
