// Rounded where a separate product would round.
for (int j = 0; j < COLS; ++j) {
  const float sum = simd_sum(sums[j]);
  if (lane == 0) {
    out[first + j] = T(float(T(sum)) + float(residual[first + j]));
  }
}
