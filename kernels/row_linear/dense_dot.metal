// One SIMD group gives COLS columns, STRIDE apart; its lanes share their elements.
const int first = int(thread_position_in_grid.y) * STEP;
float sums[COLS];
for (int j = 0; j < COLS; ++j) {
  sums[j] = 0.0f;
}
#pragma unroll 8
for (int i = 0; i < K / 32; ++i) {
  const int k = i * 32 + lane;
  const T staged = row[k];
  const float value = float(staged);
  for (int j = 0; j < COLS; ++j) {
    sums[j] += value * float(w[(first + j * STRIDE) * K + k]);
  }
}
