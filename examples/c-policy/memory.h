/* Blocks of memory; what cannot be had ends the guest. */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

void *allocate(size_t n_bytes);
void *reallocate(void *at, size_t n_bytes);
void release(void *at);

#endif
