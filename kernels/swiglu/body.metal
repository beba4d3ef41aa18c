// One SIMD group gives one column of a tile of rows; its lanes share the words of that column's weights.
const int WORDS = K * BITS / 32;
const int CODES = 32 / BITS;
const int GROUPS = K / GROUP;
const unsigned int MASK = (1u << BITS) - 1u;
const int lane = int(thread_index_in_simdgroup);
const int column = int(thread_position_in_grid.y);
const int first_row = int(thread_position_in_grid.z) * ROWS;
float gate[ROWS];
float up[ROWS];
for (int r = 0; r < ROWS; ++r) {
  gate[r] = 0.0f;
  up[r] = 0.0f;
}
for (int word = lane; word < WORDS; word += 32) {
  const unsigned int gate_word = gate_codes[column * WORDS + word];
  const unsigned int up_word = up_codes[column * WORDS + word];
  const int group = column * GROUPS + word * CODES / GROUP;
  const float gate_scale = float(gate_scales[group]);
  const float gate_bias = float(gate_biases[group]);
  const float up_scale = float(up_scales[group]);
  const float up_bias = float(up_biases[group]);
  for (int r = 0; r < ROWS; ++r) {
    if (first_row + r < M) {
      float gate_dot = 0.0f;
      float up_dot = 0.0f;
      float sum = 0.0f;
      for (int c = 0; c < CODES; ++c) {
        const float value = float(x[(first_row + r) * K + word * CODES + c]);
        sum += value;
        gate_dot += value * float((gate_word >> (c * BITS)) & MASK);
        up_dot += value * float((up_word >> (c * BITS)) & MASK);
      }
      gate[r] += gate_scale * gate_dot + gate_bias * sum;
      up[r] += up_scale * up_dot + up_bias * sum;
    }
  }
}
for (int r = 0; r < ROWS; ++r) {
  const float gate_sum = simd_sum(gate[r]);
  const float up_sum = simd_sum(up[r]);
  if (lane == 0 && first_row + r < M) {
    // Rounded where separate products and functions would round.
    const float g = float(T(gate_sum));
    const float u = float(T(up_sum));
    const float sigmoid = float(T(1.0f / (1.0f + metal::precise::exp(-g))));
    const float silu = float(T(g * sigmoid));
    out[(first_row + r) * I + column] = T(silu * u);
  }
}
