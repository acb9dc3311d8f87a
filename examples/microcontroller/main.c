/* Learn whether the gate rejects a part from the rows in rows.h, one after another, as a sensor would bring them. */
#include "model.h"
#include "number.h"
#include "platform.h"
#include "rows.h"

static model ctx;

int main(void)
{
    const int count = sizeof rows / sizeof rows[0];
    float x[MODEL_INPUTS], outputs[MODEL_OUTPUTS] = {0};
    int right = 0;
    unsigned long spent = 0;
    model_init(&ctx);
    for (int t = 0; t < count; ++t)
    {
        const int32_t label = rows[t].reject;
        x[0] = (float)(rows[t].weight - 5000) / 200.0f;
        x[1] = (float)(rows[t].temperature - 210) / 20.0f;
        const unsigned long before = instructions();
        model_step(&ctx, x, &label, outputs);
        spent = instructions() - before;
        right += (outputs[1] > outputs[0]) == label; /* the answer from before the update */
        if (t == 99)
        {
            put_number("row 100: outputs in millionths ", (long)(outputs[0] * 1e6f), " ");
            put_number("", (long)(outputs[1] * 1e6f), "\n");
        }
        if (t % 1000 == 999)
        {
            put_number("row ", t + 1, ": ");
            put_number("", right / 10, ".");
            put_number("", right % 10, " % of the last 1000 rows\n");
            right = 0;
        }
    }
    put_number("bytes of the context: ", (long)sizeof ctx, "\n");
    if (spent) put_number("instructions of a row: ", (long)spent, "\n");
    leave();
    return 0;
}
