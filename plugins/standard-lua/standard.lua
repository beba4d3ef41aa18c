-- The native samplers, as flat settings: penalty, top-p, min-p, XTC, top-k, temperature, in this order.
-- An absent setting leaves out its sampler. The Rust crate `standard` is its twin.

local Standard = {}
Standard.__index = Standard

function describe()
    return { needs = "mask-only", supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    params:refuse_unknown({
        "repetition_penalty", "repetition_context_tokens", "top_p", "min_p",
        "xtc_probability", "xtc_threshold", "top_k", "temperature",
    })
    local samplers = {}
    local function add(name, options)
        table.insert(samplers, { name = name, options = options })
    end
    local penalty = params:optional_number("repetition_penalty")
    if penalty then
        add("repetition", { penalty = penalty, context_tokens = params:usize("repetition_context_tokens") })
    end
    local top_p = params:optional_number("top_p")
    if top_p then
        add("top_p", { p = top_p })
    end
    local min_p = params:optional_number("min_p")
    if min_p then
        add("min_p", { p = min_p, min_keep = 1 })
    end
    local probability = params:optional_number("xtc_probability")
    if probability then
        add("xtc", { probability = probability, threshold = params:number("xtc_threshold") })
    end
    local top_k = params:optional_usize("top_k")
    if top_k then
        add("top_k", { k = top_k })
    end
    local temperature = params:optional_number("temperature")
    if temperature then
        add("temperature", { temperature = temperature })
    end
    return setmetatable({ samplers = samplers }, Standard)
end

function Standard:step(step)
    for _, sampler in self.samplers do
        step:apply(sampler.name, sampler.options)
    end
end

function Standard:rollback(n) end

function Standard:fork()
    return setmetatable(table.clone(self), Standard)
end
