// The group's own copy of the row. The elements of a word stand apart by the number of words, so that
// neighbouring lanes read neighbouring places.
const int lane = int(thread_index_in_simdgroup);
const int thread = int(thread_index_in_threadgroup);
threadgroup T row[K];
for (int k = thread; k < K; k += 32 * UNITS) {
  row[(k % CODES) * WORDS + k / CODES] = x[k];
}
threadgroup_barrier(mem_flags::mem_threadgroup);
