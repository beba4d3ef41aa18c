-- Qwen3, the dense models (Qwen Team 2025).
-- Plugin `qwen3` says the same in Rust; both must give the same graph.

local KNOWN = {
    "attention_bias", "head_dim", "hidden_act", "hidden_size", "intermediate_size", "layer_types",
    "max_position_embeddings", "max_window_layers", "num_attention_heads", "num_hidden_layers",
    "num_key_value_heads", "rms_norm_eps", "rope_parameters", "rope_scaling", "rope_theta", "sliding_window",
    "tie_word_embeddings", "use_sliding_window", "vocab_size",
}

-- The window of each layer, nil for full attention. Without `use_sliding_window` the window means nothing; with it
-- and without a list, layers from `max_window_layers` on slide.
local function windows(config, n_layers)
    local window = nil
    if config:bool_or("use_sliding_window", false) then
        window = config:usize_or("sliding_window", 4096)
    end
    local first = config:usize_or("max_window_layers", 28)
    local list, layer_types = {}, config:strs("layer_types")
    if layer_types == nil then
        for i = 1, n_layers do
            list[i] = if i > first then window else nil
        end
        return list
    end
    if #layer_types ~= n_layers then
        config:invalid("layer_types", `a list of {n_layers} names`)
    end
    for i, name in layer_types do
        if name == "sliding_attention" then
            list[i] = window or config:invalid("sliding_window", "a number, because a layer slides")
        elseif name ~= "full_attention" then
            config:unsupported("layer_types", "full_attention and sliding_attention")
        end
    end
    return list
end

local function read(config)
    config:refuse_unknown(KNOWN)
    if config:str_or("model_type", "qwen3") ~= "qwen3" then
        config:unsupported("model_type", "qwen3")
    elseif config:str_or("hidden_act", "silu") ~= "silu" then
        config:unsupported("hidden_act", "silu")
    end
    local n_layers, head_dim = config:usize("num_hidden_layers"), config:usize_or("head_dim", 128)
    return {
        n_layers = n_layers,
        n_heads = config:usize("num_attention_heads"),
        n_kv_heads = config:usize_or("num_key_value_heads", 32),
        head_dim = head_dim,
        rms_norm_eps = config:number_or("rms_norm_eps", 1e-6),
        attention_bias = config:bool_or("attention_bias", false),
        is_tied = config:bool_or("tie_word_embeddings", false),
        windows = windows(config, n_layers),
        rope = rope.from_config(config, head_dim),
    }
end

local function linear(g, x, name, has_bias)
    return g:linear(x, `{name}.weight`, { bias = if has_bias then `{name}.bias` else nil })
end

local function attention(g, c, i, x)
    local at = `model.layers.{i}.self_attn`
    local window = c.windows[i + 1]

    local q = g:reshape(linear(g, x, `{at}.q_proj`, c.attention_bias), { c.n_heads, c.head_dim })
    local k = g:reshape(linear(g, x, `{at}.k_proj`, c.attention_bias), { c.n_kv_heads, c.head_dim })
    local v = g:reshape(linear(g, x, `{at}.v_proj`, c.attention_bias), { c.n_kv_heads, c.head_dim })
    q = g:rope(g:rms_norm(q, `{at}.q_norm.weight`, c.rms_norm_eps), c.rope)
    k = g:rope(g:rms_norm(k, `{at}.k_norm.weight`, c.rms_norm_eps), c.rope)

    local mixed = g:attention(q, k, v, {
        slot = g:kv_slot(i, { heads = c.n_kv_heads, dim_k = c.head_dim, dim_v = c.head_dim, window = window }),
        scale = c.head_dim ^ -0.5,
        mask = if window then { window = window } else "causal",
    })
    return linear(g, g:reshape(mixed, { c.n_heads * c.head_dim }), `{at}.o_proj`, c.attention_bias)
end

local function mlp(g, i, x)
    local at = `model.layers.{i}.mlp`
    local gate = g:silu(linear(g, x, `{at}.gate_proj`))
    return linear(g, g:mul(gate, linear(g, x, `{at}.up_proj`)), `{at}.down_proj`)
end

function build(config, g)
    local c = read(config)

    local h = g:embedding(g:tokens(), "model.embed_tokens.weight")
    for i = 0, c.n_layers - 1 do
        local at = `model.layers.{i}`
        g:begin_section("layer", i)
        h = g:add(h, attention(g, c, i, g:rms_norm(h, `{at}.input_layernorm.weight`, c.rms_norm_eps)))
        h = g:add(h, mlp(g, i, g:rms_norm(h, `{at}.post_attention_layernorm.weight`, c.rms_norm_eps)))
    end
    g:begin_section("head")
    h = g:rms_norm(h, "model.norm.weight", c.rms_norm_eps)

    if c.is_tied then
        g:ignore("lm_head.weight")
        return g:linear(h, "model.embed_tokens.weight")
    end
    return g:linear(h, "lm_head.weight")
end
