// One SIMD group owns one row of one head's state; each lane keeps DK / 32 of its entries in registers.
const int OWN = DK / 32;
const int lane = int(thread_index_in_simdgroup);
const int row = int(thread_position_in_grid.y);
const int sequence = int(thread_position_in_grid.z) / HV;
const int head = int(thread_position_in_grid.z) % HV;
const int key_head = head / (HV / HK);
const int n_steps = steps[0];
float entries[OWN];
for (int i = 0; i < OWN; ++i) {
  entries[i] = state[((sequence * HV + head) * DV + row) * DK + lane * OWN + i];
}
for (int t = 0; t < n_steps; ++t) {
  const int token = sequence * n_steps + t;
  const int key = (token * HK + key_head) * DK + lane * OWN;
  const float decay = g[token * HV + head];
  float held = 0.0f;
  for (int i = 0; i < OWN; ++i) {
    entries[i] = entries[i] * decay;
    held += entries[i] * float(k[key + i]);
  }
  held = simd_sum(held);
  const float delta = (float(v[(token * HV + head) * DV + row]) - held) * float(beta[token * HV + head]);
  float result = 0.0f;
  for (int i = 0; i < OWN; ++i) {
    entries[i] = entries[i] + float(k[key + i]) * delta;
    result += entries[i] * float(q[key + i]);
  }
  result = simd_sum(result);
  if (lane == 0) {
    y[(token * HV + head) * DV + row] = T(result);
  }
}
for (int i = 0; i < OWN; ++i) {
  new_state[((sequence * HV + head) * DV + row) * DK + lane * OWN + i] = entries[i];
}
