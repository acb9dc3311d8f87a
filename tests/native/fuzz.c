/* A model that learns from bytes: what it must never do is checked at each row.

       after any call       every number of the state is finite
       a refused step       leaves the state as it was, bit for bit, but for the count of refused steps
       predict and reset    leave parameters and optimiser as they were, bit for bit

   As a program: `fuzz ROWS SEED OFFSET` draws rows, most of them ordinary, and prints a number that depends on every
   bit of results and state; the context lies OFFSET bytes behind an aligned place.
   image.h, which fuzz.py writes, has the types, and copies the state. */
#include "image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct bytes
{
    const uint8_t *at, *end;
} bytes;

static uint8_t next(bytes *from) { return from->at < from->end ? *from->at++ : 0; }

static void raw(bytes *from, void *to, size_t size)
{
    uint8_t *place = to;
    for (size_t i = 0; i < size; ++i) place[i] = next(from);
}

static real number_of(bytes *from, int kind)
{
    static const real special[] = {0, (real)-0.0, NAN, -NAN, INFINITY, -INFINITY, SMALLEST, -SMALLEST, TINY,
                                   -TINY, LARGEST, -LARGEST, 1, -1, (real)1e10, (real)1e-10, (real)1e18, (real)-1e19};
    real found;
    if (kind < 2) return (real)((int8_t)next(from)) / 32;
    if (kind == 2) return special[next(from) % (sizeof special / sizeof special[0])];
    raw(from, &found, sizeof found);
    return found;
}

static target target_of(bytes *from, int kind)
{
#ifdef CLASSES
    int32_t found;
    if (kind < 2) return next(from) % CLASSES;
    if (kind == 2) return (int32_t)next(from) - 128;
    raw(from, &found, sizeof found);
    return found;
#else
    return number_of(from, kind);
#endif
}

static uint8_t before[BYTES], after[BYTES];
static real numbers[REALS];

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    abort();
}

static void check_finite(const model *ctx)
{
    copy_reals(ctx, numbers);
    for (size_t i = 0; i < REALS; ++i)
        if (!isfinite(numbers[i])) fail("a number of the state is not finite");
}

/* What the model made of a row, for a number that depends on all of it. */
typedef struct outcome
{
    real outputs[MODEL_OUTPUTS], loss;
    int32_t accepted;
} outcome;

static outcome row(model *ctx, bytes *from)
{
    const int what = next(from), kind = what >> 3 & 3;
    real x[MODEL_INPUTS];
    target y[TARGETS];
    outcome found;
    memset(&found, 0, sizeof found);
    for (int i = 0; i < MODEL_INPUTS; ++i) x[i] = number_of(from, kind);
    for (int i = 0; i < TARGETS; ++i) y[i] = target_of(from, what >> 5 & 3);
    copy_state(ctx, before);
    if ((what & 7) == 0)
    {
        model_reset(ctx);
        copy_state(ctx, after);
        if (memcmp(before, after, LEARNED)) fail("a reset changed what was learned");
        check_finite(ctx);
        copy_state(ctx, before);
    }
    if ((what & 7) == 1)
    {
        model_predict(ctx, x, found.outputs);
        copy_state(ctx, after);
        if (memcmp(before, after, LEARNED)) fail("predict changed what was learned");
    }
    else
    {
        const model_result result = model_step(ctx, x, y, found.outputs);
        found.loss = result.loss;
        found.accepted = result.accepted;
        copy_state(ctx, after);
        if (!result.accepted && memcmp(before, after, BYTES)) fail("a refused step changed the state");
        if (result.accepted && !isfinite(result.loss)) fail("a step with a loss that is not finite was accepted");
    }
    check_finite(ctx);
    return found;
}

static uint64_t drawn;

static uint64_t draw(void)
{
    drawn ^= drawn << 13;
    drawn ^= drawn >> 7;
    drawn ^= drawn << 17;
    return drawn;
}

static uint64_t mixed(uint64_t hash, const void *data, size_t size)
{
    const uint8_t *at = data;
    for (size_t i = 0; i < size; ++i) hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

int main(int count, char **given)
{
    if (count != 4) return 2;
    const long rows = strtol(given[1], NULL, 10);
    drawn = 0x9e3779b97f4a7c15u ^ (uint64_t)strtol(given[2], NULL, 10);
    uint8_t *memory = malloc(sizeof(model) + 64);
    model *ctx = (model *)(void *)(memory + strtol(given[3], NULL, 10));
    uint64_t hash = 0xcbf29ce484222325u;
    long accepted = 0;
    model_init(ctx);
    for (long t = 0; t < rows; ++t)
    {
        uint8_t data[1 + 8 * (MODEL_INPUTS + TARGETS)];
        for (size_t i = 0; i < sizeof data; ++i) data[i] = (uint8_t)(draw() >> 20);
        /* 31 of 32 rows are ordinary; one in 256 begins a sequence or is not learned. */
        if (draw() % 32) data[0] = draw() % 256 ? 2 : (uint8_t)(draw() % 2);
        bytes from = {data, data + sizeof data};
        const outcome found = row(ctx, &from);
        accepted += found.accepted;
        hash = mixed(hash, found.outputs, sizeof found.outputs);
        hash = mixed(hash, &found.loss, sizeof found.loss);
        hash = mixed(hash, &found.accepted, sizeof found.accepted);
    }
    copy_state(ctx, after);
    printf("%016llx %ld\n", (unsigned long long)mixed(hash, after, BYTES), accepted);
    free(memory);
    return 0;
}
