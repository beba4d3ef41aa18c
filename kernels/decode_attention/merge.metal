// One thread gives one channel of one head: blocks are merged in their order, then narrowed once.
const int channel = int(thread_position_in_grid.x);
const int head = int(thread_position_in_grid.y);
const int n_blocks = length[2];
float top = -3.0e38f;
for (int block = 0; block < n_blocks; ++block) {
  const float block_top = block_tops[head * n_blocks + block];
  top = block_top > top ? block_top : top;
}
float total = 0.0f;
float sum = 0.0f;
for (int block = 0; block < n_blocks; ++block) {
  const float factor = metal::precise::exp(block_tops[head * n_blocks + block] - top);
  total += block_totals[head * n_blocks + block] * factor;
  sum += block_sums[(head * n_blocks + block) * D + channel] * factor;
}
out[head * D + channel] = T(sum / total);
