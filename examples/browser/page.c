/* What the page calls: the model that learns, and a copy of it that answers for samples without a label. */
#include "model.h"

#include <string.h>

#define EXPORT(name) __attribute__((export_name(#name)))

static model learned, ahead;
static float x[MODEL_INPUTS], outputs[MODEL_OUTPUTS];

EXPORT(inputs) float *inputs(void) { return x; }
EXPORT(answers) float *answers(void) { return outputs; }
EXPORT(begin) void begin(void) { model_init(&learned); }

/* Learn from the inputs and their class; return the loss. */
EXPORT(learn) float learn(int32_t label) { return model_step(&learned, x, &label, outputs).loss; }

/* Answer for rows behind the last one that was learned: first copy, then predict each of them. */
EXPORT(copy) void copy(void) { memcpy(&ahead, &learned, sizeof ahead); }
EXPORT(predict) void predict(void) { model_predict(&ahead, x, outputs); }
