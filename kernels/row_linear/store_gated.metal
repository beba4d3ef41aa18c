// Rounded where separate products and functions would round.
if (lane == 0 && part == 0) {
  for (int j = 0; j < STEP; ++j) {
    const float gate = float(T(sums[j]));
    const float sigmoid = float(T(1.0f / (1.0f + metal::precise::exp(-gate))));
    const float silu = float(T(gate * sigmoid));
    out[first + j] = T(silu * float(T(sums[STEP + j])));
  }
}
