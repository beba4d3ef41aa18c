// One SIMD group gives one row of D elements: a head of q, or one position of the next page of k or v. The
// position that this step fills is rotated; the others are copied.
const int HALF = DIMS / 2;
const int lane = int(thread_index_in_simdgroup);
const int unit = int(thread_position_in_grid.y);
const int sequence = int(thread_position_in_grid.z);
const int filled = place[1];
const bool is_query = unit < H;
const bool is_key = !is_query && unit < H + KV * PAGE;
const int of_page = is_query ? 0 : is_key ? unit - H : unit - H - KV * PAGE;
const int kv_head = of_page / PAGE;
const int page_row = ((sequence * KV + kv_head) * PAGE + of_page % PAGE) * D;
const bool is_new = is_query || of_page % PAGE == filled;
const int head = is_query ? unit : is_key ? H + kv_head : H + KV + kv_head;
const int from = (sequence * (H + 2 * KV) + head) * D;
float squares = 0.0f;
for (int i = 0; i < D / 32; ++i) {
  const float value = float(qkv[from + i * 32 + lane]);
  squares += value * value;
}
squares = simd_sum(squares);
const float factor = metal::precise::rsqrt(squares / float(D) + as_type<float>(is_query ? Q_EPS : K_EPS));
const float position = float(place[3 + sequence]);
for (int i = 0; i < D / 32; ++i) {
  const int at = i * 32 + lane;
  if (!is_query && !is_new) {
    if (is_key) {
      k_next[page_row + at] = k_page[page_row + at];
    } else {
      v_next[page_row + at] = v_page[page_row + at];
    }
  } else if (!is_query && !is_key) {
    v_next[page_row + at] = qkv[from + at];
  } else {
    const bool is_first = INTERLEAVED ? at % 2 == 0 : at < HALF;
    const int step = INTERLEAVED ? 1 : HALF;
    const bool is_rotated = at < DIMS;
    const int other_at = !is_rotated ? at : is_first ? at + step : at - step;
    float own = float(qkv[from + at]);
    float other = float(qkv[from + other_at]);
    if (NORM) {
      own = float(T(own * factor));
      other = float(T(other * factor));
      own = float(T(own * float(is_query ? q_norm[at] : k_norm[at])));
      other = float(T(other * float(is_query ? q_norm[other_at] : k_norm[other_at])));
    }
    if (is_rotated) {
      const int pair = INTERLEAVED ? at / 2 : at % HALF;
      const float angle = position * (1.0f / periods[pair]);
      const float cosine = metal::precise::cos(angle) * as_type<float>(FACTOR);
      const float sine = metal::precise::sin(angle) * as_type<float>(FACTOR);
      own = is_first ? own * cosine - other * sine : own * cosine + other * sine;
    }
    if (is_query) {
      q[(sequence * H + unit) * D + at] = T(own);
    } else {
      k_next[page_row + at] = T(own);
    }
  }
}
