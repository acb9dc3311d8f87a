/* Written by foretrace: the model of a stream, one row at a time, in C99.
   x: ["weight"], NAN where a number is missing.
   y: "temperature" of the same row, NAN where it is missing.
   outputs: "temperature". */
#ifndef STREAM_H
#define STREAM_H

#include <stdint.h>

#define STREAM_INPUTS 1
#define STREAM_OUTPUTS 1
/* Bytes of a context: parameters, optimiser and carry; and what a step needs beside them. */
#define STREAM_STATE_BYTES 16160
#define STREAM_SCRATCH_BYTES 19880

/* Everything that a model changes; two contexts are two models. */
typedef struct stream
{
    double d_kept[2018];
    double d_work[2485];
    int32_t i_kept[4];
    int32_t now;
} stream;

/* Begin with what the run has learned. */
void stream_init(stream *ctx);

/* Write the prediction of the next row, then learn from the label that came with it. */
void stream_step(stream *ctx, const double *restrict x, const double *restrict y, double *restrict outputs);

/* Write the prediction of a row if it came next; nothing changes. */
void stream_predict(stream *ctx, const double *restrict x, double *restrict outputs);

#endif
