//! A bigram model: each token predicts the next through one norm.
//!
//! `config.json` tells `hidden_size`, `vocab_size` and `rms_norm_eps`; `tie_word_embeddings` makes the embedding the
//! head.

use plugin_sdk::{Builder, Config, Error, ModelGraph, Section, Value, register_model_graph};

struct Bigram;

register_model_graph!(Bigram);

impl ModelGraph for Bigram {
    fn build(config: &Config, g: &mut Builder) -> Result<Value, Error> {
        // What is not read may change the model: refuse it.
        config.refuse_unknown(&["hidden_size", "vocab_size", "rms_norm_eps", "tie_word_embeddings"])?;
        let eps = config.number("rms_norm_eps")?;
        let is_tied = config.bool_or("tie_word_embeddings", false)?;

        let tokens = g.tokens()?;
        let h = g.embedding(tokens, "model.embed_tokens.weight")?;
        g.begin_section(Section::Head);
        let h = g.rms_norm(h, Some("model.norm.weight"), eps, 0.0)?;
        let head = if is_tied { "model.embed_tokens.weight" } else { "lm_head.weight" };
        g.linear(h, head, None)
    }
}
