// The group's own copy of the row, normed, four elements at a place. The quads of a chunk stand apart by the number of
// chunks, so that neighbouring lanes read neighbouring places.
const int OWN = (K / 4 + 32 * UNITS - 1) / (32 * UNITS);
const int lane = int(thread_index_in_simdgroup);
const int unit = int(simdgroup_index_in_threadgroup);
const int thread = int(thread_index_in_threadgroup);
threadgroup float squares_of[UNITS];
threadgroup vec<T, 4> row[K / 4];
vec<T, 4> own[OWN];
float squares = 0.0f;
#pragma unroll
for (int i = 0; i < OWN; ++i) {
  const int quad = i * 32 * UNITS + thread;
  if (quad < K / 4) {
    own[i] = *(const device vec<T, 4>*)(x + 4 * quad);
    for (int e = 0; e < 4; ++e) {
      squares += float(own[i][e]) * float(own[i][e]);
    }
  }
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
const float factor = metal::precise::rsqrt(total / float(K) + as_type<float>(EPS));
#pragma unroll
for (int i = 0; i < OWN; ++i) {
  const int quad = i * 32 * UNITS + thread;
  if (quad < K / 4) {
    const vec<T, 4> weight = *(const device vec<T, 4>*)(norm + 4 * quad);
    for (int e = 0; e < 4; ++e) {
      own[i][e] = T(float(T(float(own[i][e]) * factor)) * float(weight[e]));
    }
    row[quad % QUADS * CHUNKS + quad / QUADS] = own[i];
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
