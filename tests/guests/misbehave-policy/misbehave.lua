-- A policy that misbehaves in the way that the param `do` names; the Rust crate is its twin.

-- What `describe` does. It is asked before any param is known, so the suite writes another deed over this text.
local DESCRIBE = "describe: nothing               "

local function spin()
    while true do end
end

local function recurse(depth)
    return recurse(depth + 1) + depth
end

local deeds = {}

function deeds.nothing() end

-- Deeds of other hooks than `step`.
deeds["leave behind"] = deeds.nothing
deeds["loop in fork"] = deeds.nothing
deeds["loop in drop"] = deeds.nothing
deeds["claimed fork"] = deeds.nothing

deeds["loop"] = spin

deeds["loop late"] = function(self)
    if self.n_steps == 3 then
        spin()
    end
end

deeds["loop in rollback"] = deeds.nothing

function deeds.exponential()
    string.find(string.rep("a", 40), string.rep("a?", 40) .. string.rep("a", 40))
end

deeds["long native call"] = function()
    local text = string.rep("a", 1000000)
    while true do
        string.find(text, string.sub(text, 1, 100000) .. "b", 1, true)
    end
end

deeds["bad order"] = function()
    local numbers = table.create(1000, 1)
    table.sort(numbers, function() return true end)
end

deeds["refused for ever"] = function(self, step)
    while true do
        pcall(function() step:get({ 0 }) end)
    end
end

function deeds.bomb()
    local hoard = {}
    while true do
        table.insert(hoard, buffer.create(1048576))
    end
end

deeds["one large block"] = function()
    string.rep("x", 1073741824)
end

function deeds.doubling()
    local text = "x"
    while true do
        text = text .. text
    end
end

function deeds.recurse()
    return recurse(0)
end

function deeds.panic()
    error("I am not well")
end

deeds["log flood"] = function(self, step)
    while true do
        step:log("all work and no play")
    end
end

deeds["error"] = function()
    error("I changed my mind")
end

deeds["unknown token"] = function(self, step)
    step:bias({ self.n_vocab }, { 1 })
end

deeds["unknown forced"] = function(self, step)
    step:force({ 4294967295 })
end

deeds["unknown run"] = function(self, step)
    step:allow_runs({ { 0, self.n_vocab + 1 } })
end

deeds["inverted run"] = function(self, step)
    step:allow_runs({ { 7, 3 } })
end

deeds["odd runs"] = function(self, step)
    step:allow_runs({ { 9, 12 }, { 3, 3 }, { 2, 10 }, { 0, 1 } })
end

deeds["infinite"] = function(self, step)
    step:bias({ 0 }, { math.huge })
end

deeds["long force"] = function(self, step)
    step:force(table.create(16384, 0))
end

deeds["finish twice"] = function(self, step)
    step:finish("once")
    step:finish("twice")
end

deeds["finish and force"] = function(self, step)
    step:finish("enough")
    step:force({ 1, 2, 3 })
end

deeds["forged step"] = function(self, step)
    step.position(self)
end

deeds["oversized list"] = function(self, step)
    step:bias(table.create(16384, 0), table.create(16384, 0))
end

deeds["oversized mask"] = function(self, step)
    step:allow_words(table.create(16384, 0))
end

deeds["unequal lists"] = function(self, step)
    step:bias({ 0, 1 }, { 0 })
end

deeds["not a number"] = function(self, step)
    step:bias({ 0 }, { 0 / 0 })
end

deeds["not granted"] = function(self, step)
    step:get({ 0 })
end

deeds["more than said"] = function(self, step)
    step:top(5)
end

deeds["out of range"] = function(self, step)
    step:apply("top_p", { p = -1 })
end

deeds["many calls"] = function(self, step)
    while true do
        step:random_u32()
    end
end

deeds["long reason"] = function(self, step)
    step:finish(string.rep("x", 65536))
end

deeds["long text"] = function(self)
    self.vocabulary:encode(string.rep("x", 65536))
end

deeds["nothing left"] = function(self, step)
    step:allow_runs({})
end

deeds.swallow = function(self, step)
    pcall(function() step:get({ 0 }) end)
end

-- Only a script can keep the handle: a component's borrow ends with the call.
local kept
deeds["kept step"] = function(self, step)
    kept = step
end

local Misbehave = {}
Misbehave.__index = Misbehave

function describe()
    local deed = string.match(DESCRIBE, "^describe: (.-) *$")
    if deed == "loop" then
        spin()
    elseif deed == "panic" then
        error("I am not well")
    elseif deed == "full logits" then
        return { needs = "full-logits", supports_rollback = true, supports_fork = true }
    end
    return { needs = { top_k = 4 }, supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    local deed = params:str("do")
    if deed == "loop in open" then
        spin()
    elseif deed == "panic in open" then
        error("I am not well")
    elseif deed == "leave behind" then
        assert(left_behind == nil, "I was here before")
        left_behind = vocabulary
    elseif deed == "handle leak" then
        local hoard = {}
        while true do
            table.insert(hoard, setmetatable({}, { __index = params }))
        end
    elseif deed == "invalid" then
        params:invalid("do", "something else")
    elseif deed == "unsupported" then
        params:unsupported("do", "something else")
    end
    -- Finalizers would run after the request; there are none.
    setmetatable({}, { __gc = spin })
    local policy = { deed = deed, n_vocab = vocabulary:n_vocab(), n_steps = 0, vocabulary = vocabulary }
    return setmetatable(policy, Misbehave)
end

function Misbehave:step(step)
    self.n_steps += 1
    deeds[self.deed](self, step)
end

function Misbehave:rollback(n)
    if self.deed == "loop in rollback" then
        spin()
    elseif kept then
        kept:accepted()
    end
end

function Misbehave:fork()
    if self.deed == "loop in fork" then
        spin()
    elseif self.deed == "claimed fork" then
        error("I cannot fork after all")
    end
    return setmetatable(table.clone(self), Misbehave)
end
