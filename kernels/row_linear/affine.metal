const int CODES = 32 / BITS;
const int WORDS = K / CODES;
const int GROUPS = K / GROUP;
const unsigned int MASK = (1u << BITS) - 1u;
