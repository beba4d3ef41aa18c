-- Gemma 3, the text decoder (Gemma Team 2025).
-- Plugin `gemma3` says the same in Rust; both must give the same graph.

local KNOWN = {
    "_sliding_window_pattern", "attention_bias", "attn_logit_softcapping", "cache_implementation",
    "final_logit_softcapping", "head_dim", "hidden_activation", "hidden_size", "intermediate_size",
    "layer_types", "max_position_embeddings", "num_attention_heads", "num_hidden_layers",
    "num_key_value_heads", "query_pre_attn_scalar", "rms_norm_eps", "rope_local_base_freq",
    "rope_parameters", "rope_scaling", "rope_theta", "sliding_window", "sliding_window_pattern",
    "tie_word_embeddings", "use_bidirectional_attention", "vocab_size",
}

local FULL, SLIDING = "full_attention", "sliding_attention"

-- Older configs tell a period instead of a list: every sixth layer attends fully.
local function layer_types(config, n_layers)
    local list = config:strs("layer_types")
    if list == nil then
        local period = config:usize_or("sliding_window_pattern", 6)
        if period == 0 then
            config:invalid("sliding_window_pattern", "at least 1")
        end
        list = {}
        for i = 1, n_layers do
            list[i] = if i % period == 0 then FULL else SLIDING
        end
    elseif #list ~= n_layers then
        config:invalid("layer_types", `a list of {n_layers} names`)
    end
    for _, name in list do
        if name ~= FULL and name ~= SLIDING then
            config:unsupported("layer_types", "full_attention and sliding_attention")
        end
    end
    return list
end

-- Older configs scale the rotation of full attention alone and name the other base apart.
local function rotations(config, head_dim)
    local parameters, scaling = config:object("rope_parameters"), config:object("rope_scaling")
    if parameters ~= nil and scaling ~= nil then
        config:unsupported("rope_scaling", "nothing beside rope_parameters")
    end
    local full, sliding = scaling, nil
    if parameters ~= nil then
        parameters:refuse_unknown({ FULL, SLIDING })
        full, sliding = parameters:object(FULL), parameters:object(SLIDING)
    end
    return {
        [FULL] = rope.from_parameters(full, config, head_dim, config:number_or("rope_theta", 1e6)),
        [SLIDING] = rope.from_parameters(
            sliding, config, head_dim, config:number_or("rope_local_base_freq", 1e4)
        ),
    }
end

local function read(config)
    config:refuse_unknown(KNOWN)
    if config:str_or("model_type", "gemma3_text") ~= "gemma3_text" then
        config:unsupported("model_type", "gemma3_text")
    elseif config:str_or("hidden_activation", "gelu_pytorch_tanh") ~= "gelu_pytorch_tanh" then
        config:unsupported("hidden_activation", "gelu_pytorch_tanh")
    elseif config:bool_or("use_bidirectional_attention", false) then
        config:unsupported("use_bidirectional_attention", "false")
    elseif config:has("attn_logit_softcapping") then
        -- The reference reads the key into the config and never hands it to its attention.
        print("attn_logit_softcapping has no effect in gemma3_text")
    end
    local n_layers, head_dim = config:usize("num_hidden_layers"), config:usize_or("head_dim", 256)
    return {
        hidden_size = config:usize("hidden_size"),
        n_layers = n_layers,
        n_heads = config:usize("num_attention_heads"),
        n_kv_heads = config:usize("num_key_value_heads"),
        head_dim = head_dim,
        scale = config:number_or("query_pre_attn_scalar", 256) ^ -0.5,
        window = config:usize_or("sliding_window", 4096),
        rms_norm_eps = config:number_or("rms_norm_eps", 1e-6),
        attention_bias = config:bool_or("attention_bias", false),
        is_tied = config:bool_or("tie_word_embeddings", true),
        final_softcap = config:optional_number("final_logit_softcapping"),
        layer_types = layer_types(config, n_layers),
        rope = rotations(config, head_dim),
    }
end

local function norm(g, c, x, name)
    return g:rms_norm(x, `{name}.weight`, c.rms_norm_eps, { offset = 1 })
end

local function linear(g, x, name, has_bias)
    return g:linear(x, `{name}.weight`, { bias = if has_bias then `{name}.bias` else nil })
end

local function attention(g, c, i, x)
    local at = `model.layers.{i}.self_attn`
    local kind = c.layer_types[i + 1]
    local window = if kind == SLIDING then c.window else nil

    local q = g:reshape(linear(g, x, `{at}.q_proj`, c.attention_bias), { c.n_heads, c.head_dim })
    local k = g:reshape(linear(g, x, `{at}.k_proj`, c.attention_bias), { c.n_kv_heads, c.head_dim })
    local v = g:reshape(linear(g, x, `{at}.v_proj`, c.attention_bias), { c.n_kv_heads, c.head_dim })
    q = g:rope(norm(g, c, q, `{at}.q_norm`), c.rope[kind])
    k = g:rope(norm(g, c, k, `{at}.k_norm`), c.rope[kind])

    local mixed = g:attention(q, k, v, {
        slot = g:kv_slot(i, { heads = c.n_kv_heads, dim_k = c.head_dim, dim_v = c.head_dim, window = window }),
        scale = c.scale,
        mask = if window then { window = window } else "causal",
    })
    return linear(g, g:reshape(mixed, { c.n_heads * c.head_dim }), `{at}.o_proj`, c.attention_bias)
end

local function mlp(g, i, x)
    local at = `model.layers.{i}.mlp`
    local gate = g:gelu_tanh(linear(g, x, `{at}.gate_proj`))
    return linear(g, g:mul(gate, linear(g, x, `{at}.up_proj`)), `{at}.down_proj`)
end

local function layer(g, c, i, h)
    local at = `model.layers.{i}`
    local a = attention(g, c, i, norm(g, c, h, `{at}.input_layernorm`))
    h = g:add(h, norm(g, c, a, `{at}.post_attention_layernorm`))
    local m = mlp(g, i, norm(g, c, h, `{at}.pre_feedforward_layernorm`))
    return g:add(h, norm(g, c, m, `{at}.post_feedforward_layernorm`))
end

function build(config, g)
    local c = read(config)

    local h = g:embedding(g:tokens(), "model.embed_tokens.weight")
    h = g:scale(h, c.hidden_size ^ 0.5)
    for i = 0, c.n_layers - 1 do
        g:begin_section("layer", i)
        h = layer(g, c, i, h)
    end
    g:begin_section("head")
    h = norm(g, c, h, "model.norm")

    local logits
    if c.is_tied then
        g:ignore("lm_head.weight")
        logits = g:linear(h, "model.embed_tokens.weight")
    else
        logits = g:linear(h, "lm_head.weight")
    end
    return if c.final_softcap then g:softcap(logits, c.final_softcap) else logits
end
