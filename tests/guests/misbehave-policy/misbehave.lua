-- A policy that misbehaves in the way that the param `do` names; the Rust crate is its twin.

local function spin()
    while true do end
end

local function recurse(depth)
    return recurse(depth + 1) + depth
end

local deeds = {}

function deeds.nothing() end

deeds["loop"] = spin

deeds["loop late"] = function(self)
    if self.n_steps == 3 then
        spin()
    end
end

deeds["loop in rollback"] = function() end

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

deeds["oversized list"] = function(self, step)
    step:bias(table.create(131072, 0), table.create(131072, 0))
end

deeds["oversized mask"] = function(self, step)
    step:allow_words(table.create(131072, 0))
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
    return { needs = { top_k = 4 }, supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    local deed = params:str("do")
    if deed == "loop in open" then
        spin()
    elseif deed == "panic in open" then
        error("I am not well")
    elseif deed == "invalid" then
        params:invalid("do", "something else")
    elseif deed == "unsupported" then
        params:unsupported("do", "something else")
    end
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
    return setmetatable(table.clone(self), Misbehave)
end
