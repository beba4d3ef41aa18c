#pragma unroll 2
for (int i = 0; i < (CHUNKS + 32 * PARTS - 1) / (32 * PARTS); ++i) {
  const int mine = (i * PARTS + part) * 32 + lane;
  const int chunk = mine < CHUNKS ? mine : 0;
  vec<unsigned int, VEC> words[COLS];
  float scale[COLS];
  float bias[COLS];
  float dots[COLS];
  for (int j = 0; j < COLS; ++j) {
    const int at = (first + j % STEP + j / STEP * STRIDE) * CHUNKS + chunk;
    const int group = at * QUADS / (GROUP / 4);
    words[j] = *(const device vec<unsigned int, VEC>*)(codes + at * VEC);
    scale[j] = float(scales[group]);
    bias[j] = float(biases[group]);
    dots[j] = 0.0f;
  }
  float sum = 0.0f;
  for (int q = 0; q < QUADS; ++q) {
    const vec<T, 4> staged = row[q * CHUNKS + chunk];
    for (int e = 0; e < 4; ++e) {
      const int code = 4 * q + e;
      const float value = float(staged[e]);
      sum += value;
      for (int j = 0; j < COLS; ++j) {
        dots[j] += value * float((words[j][code / CODES] >> (code % CODES * BITS)) & MASK);
      }
    }
  }
  for (int j = 0; j < COLS; ++j) {
    sums[j] += mine < CHUNKS ? scale[j] * dots[j] + bias[j] * sum : 0.0f;
  }
}
