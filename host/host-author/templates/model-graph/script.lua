-- A bigram model: each token predicts the next through one norm.
-- `config.json` tells `hidden_size`, `vocab_size` and `rms_norm_eps`; `tie_word_embeddings` makes the embedding the head.

function build(config, g)
    -- What is not read may change the model: refuse it.
    config:refuse_unknown({ "hidden_size", "vocab_size", "rms_norm_eps", "tie_word_embeddings" })
    local eps = config:number("rms_norm_eps")
    local is_tied = config:bool_or("tie_word_embeddings", false)

    local h = g:embedding(g:tokens(), "model.embed_tokens.weight")
    g:begin_section("head")
    h = g:rms_norm(h, "model.norm.weight", eps)
    return g:linear(h, if is_tied then "model.embed_tokens.weight" else "lm_head.weight")
end
