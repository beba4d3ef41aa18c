// Rounded where a separate product would round.
if (lane == 0 && part == 0) {
  for (int j = 0; j < STEP; ++j) {
    out[first + j] = T(float(T(sums[j])) + float(residual[first + j]));
  }
}
