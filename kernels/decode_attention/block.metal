// One thread group attends one head to one block of positions. Its four SIMD groups take every fourth
// position; each lane owns D / 32 channels, whole words inside one quantisation group.
const int OWN = D / 32;
const int OWN_WORDS = OWN * BITS / 32;
const int CODES = 32 / BITS;
const int ROW_WORDS = D * BITS / 32;
const int ROW_GROUPS = D / GROUP;
const unsigned int MASK = (1u << BITS) - 1u;
threadgroup float unit_sums[4][D];
threadgroup float unit_tops[4];
threadgroup float unit_totals[4];
const int lane = int(thread_index_in_simdgroup);
const int unit = int(simdgroup_index_in_threadgroup);
const int block = int(threadgroup_position_in_grid.y);
const int head = int(threadgroup_position_in_grid.z);
const int kv_head = head / (H / KV);
const int n_positions = length[0];
const int capacity = length[1];
const int n_blocks = length[2];
const int stop = (block + 1) * BLOCK < n_positions ? (block + 1) * BLOCK : n_positions;
float query[OWN];
float query_sum = 0.0f;
for (int i = 0; i < OWN; ++i) {
  query[i] = float(q[head * D + lane * OWN + i]);
  query_sum += query[i];
}
float top = -3.0e38f;
float total = 0.0f;
float offset = 0.0f;
float sums[OWN];
for (int i = 0; i < OWN; ++i) {
  sums[i] = 0.0f;
}
for (int position = block * BLOCK + unit; position < stop; position += 4) {
  const int row = kv_head * capacity + position;
  const int group = row * ROW_GROUPS + lane * OWN / GROUP;
  float dot = 0.0f;
  for (int w = 0; w < OWN_WORDS; ++w) {
    const unsigned int word = k_codes[row * ROW_WORDS + lane * OWN_WORDS + w];
    for (int c = 0; c < CODES; ++c) {
      dot += query[w * CODES + c] * float((word >> (c * BITS)) & MASK);
    }
  }
  const float part = float(k_scales[group]) * dot + float(k_biases[group]) * query_sum;
  const float score = float(T(simd_sum(part)));
  const float next_top = score > top ? score : top;
  const float keep = metal::precise::exp(top - next_top);
  const float weight = metal::precise::exp(score - next_top);
  const float scaled = weight * float(v_scales[group]);
  total = total * keep + weight;
  offset = offset * keep + weight * float(v_biases[group]);
  for (int w = 0; w < OWN_WORDS; ++w) {
    const unsigned int word = v_codes[row * ROW_WORDS + lane * OWN_WORDS + w];
    for (int c = 0; c < CODES; ++c) {
      sums[w * CODES + c] = sums[w * CODES + c] * keep + scaled * float((word >> (c * BITS)) & MASK);
    }
  }
  top = next_top;
}
for (int i = 0; i < OWN; ++i) {
  unit_sums[unit][lane * OWN + i] = sums[i] + offset;
}
if (lane == 0) {
  unit_tops[unit] = top;
  unit_totals[unit] = total;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float block_top = -3.0e38f;
for (int u = 0; u < 4; ++u) {
  const float unit_top = unit_tops[u];
  block_top = unit_top > block_top ? unit_top : block_top;
}
float block_total = 0.0f;
float factors[4];
for (int u = 0; u < 4; ++u) {
  factors[u] = metal::precise::exp(unit_tops[u] - block_top);
  block_total += float(unit_totals[u]) * factors[u];
}
for (int channel = unit * 32 + lane; channel < D; channel += 128) {
  float sum = 0.0f;
  for (int u = 0; u < 4; ++u) {
    sum += float(unit_sums[u][channel]) * factors[u];
  }
  block_sums[(head * n_blocks + block) * D + channel] = sum;
}
if (lane == 0 && unit == 0) {
  block_tops[head * n_blocks + block] = block_top;
  block_totals[head * n_blocks + block] = block_total;
}
