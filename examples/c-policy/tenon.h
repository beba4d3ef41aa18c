/* The world `sampling-policy` of contract 0.2 for plugins in C: what the canonical ABI makes of plugin-sdk/wit/0.2.
 *
 * A policy is one core module. It imports the functions below from `tenon:plugin/sampling@0.2.0`, exports those of
 * `tenon:plugin/policy@0.2.0`, and is made a component afterwards. Values cross as 32-bit numbers: lists and texts as
 * address and length, results through memory that the caller gives. Whatever the host hands over was allocated with
 * `cabi_realloc` and belongs to the plugin. Only the calls that the example needs are declared; the others follow the same
 * rules.
 */
#ifndef TENON_H
#define TENON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TENON_SAMPLING "tenon:plugin/sampling@0.2.0"
#define TENON_POLICY "tenon:plugin/policy@0.2.0"

#define TENON_IMPORT(interface, name) __attribute__((import_module(interface), import_name(name)))
#define TENON_EXPORT(name) __attribute__((export_name(TENON_POLICY "#" name)))

/* Contract and world, read before anything is compiled: major, minor, patch in big-endian, then the name. A variable
   with a section attribute would be data of the module; what is wanted is a section of its own. */
#define TENON_SAMPLING_POLICY                                                                                     \
    __asm__(".section \".custom_section.tenon:api\",\"\",@\n"                                                     \
            ".ascii \"\\000\\000\\000\\002\\000\\000sampling-policy\"\n")

/* Handles: a step lives during one call; an instance is the plugin's own resource. */
typedef int32_t tenon_step;
typedef int32_t tenon_instance;

typedef struct {
    const char *at;
    size_t n_bytes;
} tenon_text;

typedef struct {
    uint32_t *at;
    size_t n;
} tenon_ids;

/* `needs`: which logits a policy reads. */
enum { TENON_MASK_ONLY, TENON_TOP_K, TENON_FULL_LOGITS };

/* record `traits` */
typedef struct {
    uint8_t needs;
    uint32_t top_k;
    bool argmax_invariant;
    bool supports_rollback;
    bool supports_fork;
} tenon_traits;

/* record `field-error` */
typedef struct {
    tenon_text path;
    tenon_text expected;
    tenon_text found;
} tenon_field_error;

/* variant `step-refusal`: a tag and what the case holds. It is passed on as it came. */
typedef struct {
    uint32_t words[7];
} tenon_step_refusal;

/* result<_, step-refusal> */
typedef struct {
    uint8_t is_refused;
    tenon_step_refusal refusal;
} tenon_done;

/* variant `plugin-error` */
enum { TENON_INVALID_CONFIG, TENON_UNSUPPORTED, TENON_BUILD, TENON_STEP, TENON_INTERNAL };

typedef struct {
    uint8_t tag;
    union {
        struct {
            const tenon_field_error *at;
            size_t n;
        } fields;
        tenon_step_refusal step;
        tenon_text internal;
        /* The largest case: what a model graph's builder refused. */
        uint32_t build[10];
    };
} tenon_error;

/* result<own<instance>, plugin-error>, and result<_, plugin-error> where the instance is not read. */
typedef struct {
    uint8_t is_error;
    union {
        tenon_instance instance;
        tenon_error error;
    };
} tenon_outcome;

_Static_assert(sizeof(tenon_traits) == 12, "as the canonical ABI lays it out");
_Static_assert(sizeof(tenon_done) == 32, "as the canonical ABI lays it out");
_Static_assert(sizeof(tenon_outcome) == 48, "as the canonical ABI lays it out");

/* interface `sampling` */
TENON_IMPORT(TENON_SAMPLING, "log") void tenon_log(const char *line, size_t n_bytes);
TENON_IMPORT(TENON_SAMPLING, "[method]step.accepted") void tenon_step_accepted(tenon_step, tenon_ids *out);
TENON_IMPORT(TENON_SAMPLING, "[method]step.bias")
void tenon_step_bias(tenon_step, const uint32_t *ids, size_t n_ids, const float *values, size_t n_values, tenon_done *out);
TENON_IMPORT(TENON_SAMPLING, "[resource-drop]step") void tenon_step_drop(tenon_step);

/* interface `policy`: makes a handle of a pointer of ours, which the host gives back in every call. */
TENON_IMPORT("[export]" TENON_POLICY, "[resource-new]instance") tenon_instance tenon_instance_new(void *policy);

#endif
