const int CODES = 1;
const int WORDS = K;
