/* The least allocator that a plugin needs: blocks of powers of two, kept in lists when they are freed.
 *
 * The guest's memory belongs to one request and is gone with it. When the host grants no more, the guest ends. */
#include "memory.h"

#define PAGE 65536u
#define SMALLEST 4u /* 16 bytes */

/* Stands before each block, 16 bytes wide so that blocks are aligned for everything. */
typedef struct block {
    uint32_t size_log2;
    struct block *next;
    uint32_t pad[2];
} block;

extern unsigned char __heap_base;

static block *free_blocks[32];
static uintptr_t top, end;

static uint32_t class_of(size_t n_bytes) {
    uint32_t class = SMALLEST;
    while (((size_t)1 << class) < n_bytes) class++;
    return class;
}

static block *from_memory(size_t n_bytes) {
    if (top == 0) {
        top = ((uintptr_t)&__heap_base + 15) & ~(uintptr_t)15;
        end = (uintptr_t)__builtin_wasm_memory_size(0) * PAGE;
    }
    if (end - top < n_bytes) {
        size_t n_pages = (n_bytes + PAGE - 1) / PAGE;
        if (__builtin_wasm_memory_grow(0, n_pages) == (size_t)-1) __builtin_trap();
        end += n_pages * PAGE;
    }
    block *made = (block *)top;
    top += n_bytes;
    return made;
}

void *allocate(size_t n_bytes) {
    if (n_bytes > (size_t)1 << 30) __builtin_trap();
    uint32_t class = class_of(n_bytes);
    block *found = free_blocks[class];
    if (found) {
        free_blocks[class] = found->next;
    } else {
        found = from_memory(sizeof(block) + ((size_t)1 << class));
        found->size_log2 = class;
    }
    return found + 1;
}

void release(void *at) {
    if (!at) return;
    block *freed = (block *)at - 1;
    freed->next = free_blocks[freed->size_log2];
    free_blocks[freed->size_log2] = freed;
}

void *reallocate(void *at, size_t n_bytes) {
    if (!at) return allocate(n_bytes);
    size_t held = (size_t)1 << ((block *)at - 1)->size_log2;
    if (n_bytes <= held) return at;
    void *moved = allocate(n_bytes);
    __builtin_memcpy(moved, at, held);
    release(at);
    return moved;
}

/* What the host calls to hand lists and texts over. No type of the contract is aligned wider than 16 bytes. */
__attribute__((export_name("cabi_realloc"))) void *cabi_realloc(void *at, size_t old, size_t align, size_t n_bytes) {
    (void)old, (void)align;
    return reallocate(at, n_bytes);
}
