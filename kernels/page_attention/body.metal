// One thread group attends one head: its SIMD groups take AT_ONCE neighbouring positions in turn, first those of the
// cache, then those of the page. A lane owns every 32nd channel.
const int OWN = D / 32;
threadgroup float unit_sums[UNITS][D];
threadgroup float unit_tops[UNITS];
threadgroup float unit_totals[UNITS];
const int lane = int(thread_index_in_simdgroup);
const int unit = int(simdgroup_index_in_threadgroup);
const int head = int(threadgroup_position_in_grid.y);
const int sequence = int(threadgroup_position_in_grid.z);
const int n_cached = place[0];
const int n_all = n_cached + place[1] + 1;
const int kv_row = sequence * KV + head / (H / KV);
const int cache_row = kv_row * place[2];
const int page_row = kv_row * PAGE;
const int query_row = (sequence * H + head) * D;
float query[OWN];
float sums[OWN];
for (int i = 0; i < OWN; ++i) {
  query[i] = float(q[query_row + i * 32 + lane]) * as_type<float>(SCALE);
  sums[i] = 0.0f;
}
float top = -3.0e38f;
float total = 0.0f;
for (int start = place[3 + SEQUENCES + sequence] + unit * AT_ONCE; start < n_all; start += UNITS * AT_ONCE) {
  // All that these positions need is on its way before any of it is used. Behind the last one, that one again, of no
  // weight.
  float keys[AT_ONCE][OWN];
  float values[AT_ONCE][OWN];
  float scores[AT_ONCE];
  for (int a = 0; a < AT_ONCE; ++a) {
    const int at = start + a < n_all ? start + a : n_all - 1;
    const bool is_cached = at < n_cached;
    const int row = (is_cached ? cache_row + at : page_row + at - n_cached) * D + lane;
    for (int i = 0; i < OWN; ++i) {
      keys[a][i] = float(is_cached ? k_cache[row + i * 32] : k_page[row + i * 32]);
      values[a][i] = float(is_cached ? v_cache[row + i * 32] : v_page[row + i * 32]);
    }
  }
  float next_top = top;
  for (int a = 0; a < AT_ONCE; ++a) {
    float score = 0.0f;
    for (int i = 0; i < OWN; ++i) {
      score += query[i] * keys[a][i];
    }
    score = simd_sum(score);
    scores[a] = score;
    next_top = start + a < n_all && score > next_top ? score : next_top;
  }
  const float keep = metal::precise::exp(top - next_top);
  total *= keep;
  for (int i = 0; i < OWN; ++i) {
    sums[i] *= keep;
  }
  for (int a = 0; a < AT_ONCE; ++a) {
    const float weight = start + a < n_all ? metal::precise::exp(scores[a] - next_top) : 0.0f;
    total += weight;
    for (int i = 0; i < OWN; ++i) {
      sums[i] += weight * values[a][i];
    }
  }
  top = next_top;
}
for (int i = 0; i < OWN; ++i) {
  unit_sums[unit][i * 32 + lane] = sums[i];
}
if (lane == 0) {
  unit_tops[unit] = top;
  unit_totals[unit] = total;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float all_top = -3.0e38f;
for (int u = 0; u < UNITS; ++u) {
  const float unit_top = unit_tops[u];
  all_top = unit_top > all_top ? unit_top : all_top;
}
float all_total = 0.0f;
float factors[UNITS];
for (int u = 0; u < UNITS; ++u) {
  factors[u] = metal::precise::exp(unit_tops[u] - all_top);
  all_total += float(unit_totals[u]) * factors[u];
}
for (int channel = unit * 32 + lane; channel < D; channel += 32 * UNITS) {
  float sum = 0.0f;
  for (int u = 0; u < UNITS; ++u) {
    sum += float(unit_sums[u][channel]) * factors[u];
  }
  out[query_row + channel] = T(sum / all_total);
}
