if (lane == 0 && part == 0) {
  for (int j = 0; j < STEP; ++j) {
    out[first + j] = T(sums[j]);
  }
}
