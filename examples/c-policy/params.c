#include "params.h"

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static void skip_spaces(tenon_text text, size_t *at) {
    while (*at < text.n_bytes && is_space(text.at[*at])) ++*at;
}

/* From an opening quote to behind the closing one. */
static void skip_string(tenon_text text, size_t *at) {
    for (++*at; *at < text.n_bytes && text.at[*at] != '"'; ++*at)
        if (text.at[*at] == '\\') ++*at;
    if (*at < text.n_bytes) ++*at;
}

/* To the comma or brace behind a value, whatever is nested in it. */
static void skip_value(tenon_text text, size_t *at) {
    size_t depth = 0;
    while (*at < text.n_bytes) {
        char c = text.at[*at];
        if (c == '"') {
            skip_string(text, at);
            continue;
        }
        if (depth == 0 && (c == ',' || c == '}')) return;
        if (c == '{' || c == '[') depth++;
        if (c == '}' || c == ']') depth--;
        ++*at;
    }
}

bool next_param(tenon_text params, size_t *at, param *out) {
    while (*at < params.n_bytes && params.at[*at] != '"') ++*at;
    if (*at >= params.n_bytes) return false;
    size_t start = *at;
    skip_string(params, at);
    out->key = (tenon_text){params.at + start + 1, *at - start - 2};
    while (*at < params.n_bytes && params.at[*at] != ':') ++*at;
    if (*at < params.n_bytes) ++*at;
    skip_spaces(params, at);
    start = *at;
    skip_value(params, at);
    size_t end = *at;
    while (end > start && is_space(params.at[end - 1])) end--;
    out->value = (tenon_text){params.at + start, end - start};
    return true;
}

bool is_object(tenon_text text) {
    size_t at = 0;
    skip_spaces(text, &at);
    return at < text.n_bytes && text.at[at] == '{';
}

bool is_text(tenon_text text, const char *other) {
    size_t i = 0;
    for (; i < text.n_bytes && other[i]; i++)
        if (text.at[i] != other[i]) return false;
    return i == text.n_bytes && !other[i];
}

bool as_whole(tenon_text value, uint32_t *out) {
    uint64_t number = 0;
    for (size_t i = 0; i < value.n_bytes; i++) {
        if (value.at[i] < '0' || value.at[i] > '9') return false;
        number = number * 10 + (uint64_t)(value.at[i] - '0');
        if (number > UINT32_MAX) return false;
    }
    *out = (uint32_t)number;
    return value.n_bytes > 0;
}
