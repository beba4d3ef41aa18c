// The group's own copy of the row, four elements at a place. The quads of a chunk stand apart by the number of chunks,
// so that neighbouring lanes read neighbouring places.
const int lane = int(thread_index_in_simdgroup);
const int unit = int(simdgroup_index_in_threadgroup);
threadgroup vec<T, 4> row[K / 4];
for (int quad = int(thread_index_in_threadgroup); quad < K / 4; quad += 32 * UNITS) {
  row[quad % QUADS * CHUNKS + quad / QUADS] = *(const device vec<T, 4>*)(x + 4 * quad);
}
threadgroup_barrier(mem_flags::mem_threadgroup);
