-- A plugin that misbehaves in the way that the config's key `do` names; the Rust crate is its twin.

local function honest(g)
    return g:linear(g:embedding(g:tokens(), "table"), "table")
end

local function recurse(depth)
    return recurse(depth + 1) + depth
end

local deeds = {}

function deeds.nothing(config, g)
    return honest(g)
end

deeds["loop"] = function()
    while true do end
end

function deeds.bomb()
    local hoard = {}
    while true do
        table.insert(hoard, buffer.create(1048576))
    end
end

function deeds.recurse()
    return recurse(0)
end

function deeds.panic()
    error("I am not well")
end

deeds["log flood"] = function(config, g)
    while true do
        g:log("all work and no play")
    end
end

deeds["log once"] = function(config, g)
    print("hello")
    return honest(g)
end

deeds["missing tensor"] = function(config, g)
    return g:weight("nowhere")
end

deeds.swallow = function(config, g)
    pcall(function() g:weight("nowhere") end)
    return honest(g)
end

deeds["huge name"] = function(config, g)
    return g:weight(string.rep("x", 1048576))
end

deeds["many nodes"] = function(config, g)
    local h = honest(g)
    while true do
        h = g:neg(h)
    end
end

deeds["many slots"] = function(config, g)
    while true do
        g:kv_slot(0, { heads = 1, dim_k = 1, dim_v = 1 })
    end
end

deeds["large reshape"] = function(config, g)
    return g:reshape(g:tokens(), { 2147483648, 2147483648, 4 })
end

deeds.doubling = function(config, g)
    local h = honest(g)
    while true do
        h = g:concat({ h, h }, 2)
    end
end

deeds["reused slot"] = function(config, g)
    local heads = g:reshape(honest(g), { 1, 10 })
    local slot = g:kv_slot(0, { heads = 1, dim_k = 10, dim_v = 10 })
    local mixed = g:attention(heads, heads, heads, { slot = slot, scale = 1 })
    return g:attention(mixed, mixed, mixed, { slot = slot, scale = 1 })
end

deeds["not a number"] = function(config, g)
    return g:constant(0 / 0)
end

deeds["beyond float32"] = function(config, g)
    return g:constant(1e300)
end

deeds["no logits"] = function(config, g)
    return g:tokens()
end

deeds["inside a scan"] = function(config, g)
    local slot = g:recurrent_slot(0, { 10 })
    local h = honest(g)
    local state = g:begin_scan(slot, { h })
    return g:end_scan(state, h)
end

deeds["error after success"] = function(config, g)
    honest(g)
    error("I changed my mind")
end

deeds["long words"] = function()
    error(string.rep("blah ", 100000))
end

deeds.invalid = function(config)
    config:invalid("do", "something else")
end

deeds.unsupported = function(config)
    config:unsupported("do", "something else")
end

function build(config, g)
    local deed = deeds[config:str("do")]
    if deed == nil then
        config:invalid("do", "a known misdeed")
    end
    return deed(config, g)
end
