-- Llama (Touvron et al. 2023; Grattafiori et al. 2024) and Mistral (Jiang et al. 2023).
-- Plugin `llama` says the same in Rust; both must give the same graph.

local KNOWN = {
    "attention_bias", "head_dim", "hidden_act", "hidden_size", "intermediate_size", "is_llama_config",
    "layer_types", "max_position_embeddings", "mlp_bias", "num_attention_heads", "num_hidden_layers",
    "num_key_value_heads", "original_max_position_embeddings", "pretraining_tp", "rms_norm_eps",
    "rope_interleaved", "rope_parameters", "rope_scaling", "rope_theta", "sliding_window",
    "tie_word_embeddings", "vocab_size",
}

-- Llama's published configs may omit a window, Mistral's mean 4096 then; `null` switches it off in both.
local function window_of(config, is_mistral)
    local window = config:optional_usize("sliding_window")
    if window == nil and is_mistral and not table.find(config:keys(), "sliding_window") then
        return 4096
    end
    return window
end

-- The window of each layer, nil for full attention.
local function windows(config, n_layers)
    local is_mistral = config:str_or("model_type", "llama") == "mistral"
    local window, layer_types = window_of(config, is_mistral), config:strs("layer_types")
    local list = {}
    if layer_types == nil then
        for i = 1, n_layers do
            list[i] = if is_mistral then window else nil
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
    local model_type = config:str_or("model_type", "llama")
    if model_type ~= "llama" and model_type ~= "mistral" then
        config:unsupported("model_type", "llama or mistral")
    elseif config:str_or("hidden_act", "silu") ~= "silu" then
        config:unsupported("hidden_act", "silu")
    elseif config:usize_or("pretraining_tp", 1) ~= 1 then
        config:unsupported("pretraining_tp", "1")
    elseif config:bool_or("rope_interleaved", false) then
        config:unsupported("rope_interleaved", "false")
    end
    local n_heads, n_layers = config:usize("num_attention_heads"), config:usize("num_hidden_layers")
    local head_dim = config:optional_usize("head_dim")
    if head_dim == nil then
        local hidden_size = config:usize("hidden_size")
        if n_heads == 0 or hidden_size % n_heads ~= 0 then
            config:invalid("num_attention_heads", `a divisor of hidden_size, {hidden_size}`)
        end
        head_dim = hidden_size // n_heads
    end
    return {
        n_layers = n_layers,
        n_heads = n_heads,
        n_kv_heads = config:usize_or("num_key_value_heads", n_heads),
        head_dim = head_dim,
        rms_norm_eps = config:number_or("rms_norm_eps", 1e-6),
        attention_bias = config:bool_or("attention_bias", false),
        mlp_bias = config:bool_or("mlp_bias", false),
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

    local mixed = g:attention(g:rope(q, c.rope), g:rope(k, c.rope), v, {
        slot = g:kv_slot(i, { heads = c.n_kv_heads, dim_k = c.head_dim, dim_v = c.head_dim, window = window }),
        scale = c.head_dim ^ -0.5,
        mask = if window then { window = window } else "causal",
    })
    return linear(g, g:reshape(mixed, { c.n_heads * c.head_dim }), `{at}.o_proj`, c.attention_bias)
end

local function mlp(g, c, i, x)
    local at = `model.layers.{i}.mlp`
    local gate = g:silu(linear(g, x, `{at}.gate_proj`, c.mlp_bias))
    local up = linear(g, x, `{at}.up_proj`, c.mlp_bias)
    return linear(g, g:mul(gate, up), `{at}.down_proj`, c.mlp_bias)
end

function build(config, g)
    local c = read(config)

    local h = g:embedding(g:tokens(), "model.embed_tokens.weight")
    for i = 0, c.n_layers - 1 do
        local at = `model.layers.{i}`
        g:begin_section("layer", i)
        h = g:add(h, attention(g, c, i, g:rms_norm(h, `{at}.input_layernorm.weight`, c.rms_norm_eps)))
        h = g:add(h, mlp(g, c, i, g:rms_norm(h, `{at}.post_attention_layernorm.weight`, c.rms_norm_eps)))
        g:ignore(`{at}.self_attn.rotary_emb.inv_freq`)
    end
    g:begin_section("head")
    h = g:rms_norm(h, "model.norm.weight", c.rms_norm_eps)

    if c.is_tied then
        g:ignore("lm_head.weight")
        return g:linear(h, "model.embed_tokens.weight")
    end
    return g:linear(h, "lm_head.weight")
end
