/* No n-gram comes twice: a token that would complete one that was there, in the prompt or since, is excluded.
 *
 * The twin of `plugins/no-repeat` in plain C. Params: `ngram`, its length in tokens; 1 lets no token come twice. */
#include "memory.h"
#include "params.h"
#include "tenon.h"

TENON_SAMPLING_POLICY;

typedef struct {
    /* Tokens before the one that is judged. */
    uint32_t n_before;
    /* The prompt and what was accepted. */
    uint32_t *history;
    size_t n, room;
} no_repeat;

/* What a call gives to the host, which reads it before the next call. */
static tenon_outcome outcome;
static tenon_field_error field;

#define TEXT(literal) ((tenon_text){literal, sizeof(literal) - 1})

static tenon_outcome *done(void) {
    outcome.is_error = 0;
    return &outcome;
}

static tenon_outcome *opened(no_repeat *policy) {
    outcome.is_error = 0;
    outcome.instance = tenon_instance_new(policy);
    return &outcome;
}

static tenon_outcome *wrong(uint8_t tag, tenon_text path, tenon_text expected, tenon_text found) {
    field = (tenon_field_error){path, expected, found};
    outcome.is_error = 1;
    outcome.error.tag = tag;
    outcome.error.fields.at = &field;
    outcome.error.fields.n = 1;
    return &outcome;
}

static tenon_outcome *wrong_ngram(tenon_text expected, tenon_text found) {
    return wrong(TENON_INVALID_CONFIG, TEXT("params.ngram"), expected, found);
}

/* `params.` and the key. */
static tenon_text path_of(tenon_text key) {
    char *path = allocate(7 + key.n_bytes);
    __builtin_memcpy(path, "params.", 7);
    __builtin_memcpy(path + 7, key.at, key.n_bytes);
    return (tenon_text){path, 7 + key.n_bytes};
}

TENON_EXPORT("describe") tenon_traits *describe(void) {
    static tenon_traits traits = {.needs = TENON_MASK_ONLY, .supports_rollback = true, .supports_fork = true};
    return &traits;
}

TENON_EXPORT("[static]instance.open")
tenon_outcome *open(const char *params, size_t n_bytes, uint32_t n_vocab, uint32_t *eos_ids, size_t n_eos) {
    (void)n_vocab, (void)n_eos;
    release(eos_ids);
    tenon_text text = {params, n_bytes}, ngram = TEXT("nothing");
    if (!is_object(text)) return wrong(TENON_INVALID_CONFIG, TEXT("params"), TEXT("a JSON object"), text);
    size_t at = 0;
    for (param found; next_param(text, &at, &found);) {
        if (!is_text(found.key, "ngram"))
            return wrong(TENON_UNSUPPORTED, path_of(found.key), TEXT("a key that this plugin knows"), found.value);
        ngram = found.value;
    }
    uint32_t n;
    if (!as_whole(ngram, &n)) return wrong_ngram(TEXT("a whole number of at least 0"), ngram);
    if (n == 0) return wrong_ngram(TEXT("at least 1"), ngram);
    no_repeat *policy = allocate(sizeof *policy);
    *policy = (no_repeat){.n_before = n - 1};
    return opened(policy);
}

static void remember(no_repeat *policy, tenon_ids accepted) {
    if (policy->room < policy->n + accepted.n) {
        policy->room = 2 * (policy->n + accepted.n);
        policy->history = reallocate(policy->history, policy->room * sizeof(uint32_t));
    }
    for (size_t i = 0; i < accepted.n; i++) policy->history[policy->n++] = accepted.at[i];
    release(accepted.at);
}

/* Whether the tokens that begin at `start` are the last `n_before` ones. */
static bool is_last(const no_repeat *policy, size_t start) {
    const uint32_t *history = policy->history, *last = history + policy->n - policy->n_before;
    for (size_t i = 0; i < policy->n_before; i++)
        if (history[start + i] != last[i]) return false;
    return true;
}

/* Every token that followed the last `n_before` tokens before. One that did so twice is excluded twice, which changes
 * nothing. */
static size_t banned(const no_repeat *policy, uint32_t *out) {
    size_t n = 0;
    for (size_t start = 0; start + policy->n_before < policy->n; start++)
        if (is_last(policy, start)) out[n++] = policy->history[start + policy->n_before];
    return n;
}

TENON_EXPORT("[method]instance.step") tenon_outcome *step(no_repeat *policy, tenon_step step) {
    tenon_ids accepted;
    tenon_step_accepted(step, &accepted);
    remember(policy, accepted);

    uint32_t *ids = allocate(policy->n * sizeof(uint32_t));
    float *values = allocate(policy->n * sizeof(float));
    size_t n = banned(policy, ids);
    for (size_t i = 0; i < n; i++) values[i] = -__builtin_inff();
    tenon_done bias;
    tenon_step_bias(step, ids, n, values, n, &bias);
    release(ids);
    release(values);
    tenon_step_drop(step);
    if (!bias.is_refused) return done();
    outcome.is_error = 1;
    outcome.error.tag = TENON_STEP;
    outcome.error.step = bias.refusal;
    return &outcome;
}

TENON_EXPORT("[method]instance.rollback") tenon_outcome *rollback(no_repeat *policy, uint32_t n) {
    policy->n -= n < policy->n ? n : policy->n;
    return done();
}

TENON_EXPORT("[method]instance.fork") tenon_outcome *fork_policy(const no_repeat *policy) {
    no_repeat *fork = allocate(sizeof *fork);
    *fork = *policy;
    fork->history = allocate(policy->room * sizeof(uint32_t));
    __builtin_memcpy(fork->history, policy->history, policy->n * sizeof(uint32_t));
    return opened(fork);
}

TENON_EXPORT("[dtor]instance") void dtor(no_repeat *policy) {
    release(policy->history);
    release(policy);
}
