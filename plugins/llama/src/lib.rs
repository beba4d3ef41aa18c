//! The graph of the llama family.
