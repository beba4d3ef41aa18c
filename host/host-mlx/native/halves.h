// Names of the half types for the reader of the headers; the bindings bring their own.
typedef struct float16_t { unsigned short bits; } float16_t;
typedef unsigned short bfloat16_t;
#define HAS_FLOAT16
#define HAS_BFLOAT16
