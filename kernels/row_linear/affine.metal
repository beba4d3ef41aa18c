const int CODES = 32 / BITS;
// Words that a lane takes at once: four, or as many as share a scale.
const int VEC = GROUP / CODES < 4 ? GROUP / CODES : 4;
const int QUADS = VEC * CODES / 4;
const int CHUNKS = K / (4 * QUADS);
const unsigned int MASK = (1u << BITS) - 1u;
