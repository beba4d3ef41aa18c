#pragma unroll 8
for (int i = 0; i < (CHUNKS + 32 * PARTS - 1) / (32 * PARTS); ++i) {
  const int mine = (i * PARTS + part) * 32 + lane;
  const int chunk = mine < CHUNKS ? mine : 0;
  const vec<T, 4> staged = row[chunk];
  for (int j = 0; j < COLS; ++j) {
    const int column = first + j % STEP + j / STEP * STRIDE;
    const vec<T, 4> weights = *(const device vec<T, 4>*)(w + (column * K + 4 * chunk));
    float dot = 0.0f;
    for (int e = 0; e < 4; ++e) {
      dot += float(staged[e]) * float(weights[e]);
    }
    sums[j] += mine < CHUNKS ? dot : 0.0f;
  }
}
