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
  // A code is taken where it lies in its word; what it is too large by is taken off the row's element, which is exact.
  float sum = 0.0f;
  for (int q = 0; q < QUADS; ++q) {
    const vec<T, 4> staged = row[q * CHUNKS + chunk];
    for (int e = 0; e < 4; ++e) {
      const int word = (4 * q + e) / CODES;
      const int place = (4 * q + e) % CODES * BITS;
      const float value = float(staged[e]);
      const float lowered = value * as_type<float>((127 - place) << 23);
      sum += value;
      for (int j = 0; j < COLS; ++j) {
        dots[j] += lowered * float(words[j][word] & (MASK << place));
      }
    }
  }
  for (int j = 0; j < COLS; ++j) {
    sums[j] += mine < CHUNKS ? scale[j] * dots[j] + bias[j] * sum : 0.0f;
  }
}
