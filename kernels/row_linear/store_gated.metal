// Rounded where separate products and functions would round.
const float gate_sum = simd_sum(sums[0]);
const float up_sum = simd_sum(sums[1]);
if (lane == 0) {
  const float gate = float(T(gate_sum));
  const float sigmoid = float(T(1.0f / (1.0f + metal::precise::exp(-gate))));
  const float silu = float(T(gate * sigmoid));
  out[first] = T(silu * float(T(up_sum)));
}
