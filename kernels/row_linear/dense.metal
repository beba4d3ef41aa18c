const int QUADS = 1;
const int CHUNKS = K / 4;
