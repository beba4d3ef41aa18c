// The group's own copy of the row, normed. The elements of a word stand apart by the number of words, so that
// neighbouring lanes read neighbouring places.
const int lane = int(thread_index_in_simdgroup);
const int unit = int(simdgroup_index_in_threadgroup);
const int thread = int(thread_index_in_threadgroup);
threadgroup float squares_of[UNITS];
threadgroup T row[K];
float squares = 0.0f;
for (int k = thread; k < K; k += 32 * UNITS) {
  const float value = float(x[k]);
  squares += value * value;
}
squares = simd_sum(squares);
if (lane == 0) {
  squares_of[unit] = squares;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float total = 0.0f;
for (int u = 0; u < UNITS; ++u) {
  total += float(squares_of[u]);
}
const float factor = metal::precise::rsqrt(total / float(K) + numbers[0]);
for (int k = thread; k < K; k += 32 * UNITS) {
  const float value = float(T(float(x[k]) * factor));
  row[(k % CODES) * WORDS + k / CODES] = T(value * float(norm[k]));
}
threadgroup_barrier(mem_flags::mem_threadgroup);
