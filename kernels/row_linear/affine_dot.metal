// One SIMD group gives COLS columns, STRIDE apart; its lanes share their words.
const int first = int(thread_position_in_grid.y) * STEP;
float sums[COLS];
for (int j = 0; j < COLS; ++j) {
  sums[j] = 0.0f;
}
#pragma unroll 4
for (int word = lane; word < WORDS; word += 32) {
  float values[CODES];
  float sum = 0.0f;
  for (int c = 0; c < CODES; ++c) {
    const T staged = row[c * WORDS + word];
    values[c] = float(staged);
    sum += values[c];
  }
  for (int j = 0; j < COLS; ++j) {
    const int column = first + j * STRIDE;
    const unsigned int packed = codes[column * WORDS + word];
    const int group = column * GROUPS + word * CODES / GROUP;
    float dot = 0.0f;
    for (int c = 0; c < CODES; ++c) {
      dot += values[c] * float((packed >> (c * BITS)) & MASK);
    }
    sums[j] += float(scales[group]) * dot + float(biases[group]) * sum;
  }
}
