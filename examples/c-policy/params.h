/* A flat JSON object, key by key. Broken JSON gives nonsense, never a read beyond its end. */
#ifndef PARAMS_H
#define PARAMS_H

#include "tenon.h"

typedef struct {
    /* The name without its quotes, and the text of the value. */
    tenon_text key;
    tenon_text value;
} param;

/* Reads the next key and value of `params`; `at` begins as 0. False after the last. */
bool next_param(tenon_text params, size_t *at, param *out);

bool is_object(tenon_text text);

bool is_text(tenon_text text, const char *other);

/* A whole number without sign, exponent or point; false for anything else and beyond 32 bits. */
bool as_whole(tenon_text value, uint32_t *out);

#endif
