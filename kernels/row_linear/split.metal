// PARTS SIMD groups give COLS columns: STEP neighbours, and those STRIDE behind them. They share the row's chunks; a
// lane without a chunk of its own takes the first one for nothing.
const int part = unit % PARTS;
const int first = (int(threadgroup_position_in_grid.y) * UNITS + unit) / PARTS * STEP;
float sums[COLS];
for (int j = 0; j < COLS; ++j) {
  sums[j] = 0.0f;
}
