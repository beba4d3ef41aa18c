threadgroup float parts_of[UNITS][COLS];
for (int j = 0; j < COLS; ++j) {
  sums[j] = simd_sum(sums[j]);
}
if (PARTS > 1) {
  if (lane == 0) {
    for (int j = 0; j < COLS; ++j) {
      parts_of[unit][j] = sums[j];
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0 && part == 0) {
    for (int other = 1; other < PARTS; ++other) {
      for (int j = 0; j < COLS; ++j) {
        sums[j] += float(parts_of[unit + other][j]);
      }
    }
  }
}
