-- No n-gram comes twice: a token that would complete one that was there, in the prompt or since, is excluded.
-- Params: `ngram`, its length in tokens; 1 lets no token come twice. The Rust crate `no-repeat` is its twin.

local NoRepeat = {}
NoRepeat.__index = NoRepeat

function describe()
    return { needs = "mask-only", supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    params:refuse_unknown({ "ngram" })
    local ngram = params:usize("ngram")
    if ngram < 1 then
        params:invalid("ngram", "at least 1")
    end
    return setmetatable({ n_before = ngram - 1, history = {} }, NoRepeat)
end

-- Whether the tokens that begin at `start` are the last `n_before` ones.
local function is_last(history, start, n_before)
    local last = #history - n_before
    for i = 0, n_before - 1 do
        if history[start + i] ~= history[last + 1 + i] then
            return false
        end
    end
    return true
end

function NoRepeat:step(step)
    local history, n_before = self.history, self.n_before
    for _, token in step:accepted() do
        table.insert(history, token)
    end
    local ids, values, seen = {}, {}, {}
    for start = 1, #history - n_before do
        local token = history[start + n_before]
        if not seen[token] and is_last(history, start, n_before) then
            seen[token] = true
            table.insert(ids, token)
            table.insert(values, -math.huge)
        end
    end
    step:bias(ids, values)
end

function NoRepeat:rollback(n)
    for _ = 1, math.min(n, #self.history) do
        table.remove(self.history)
    end
end

function NoRepeat:fork()
    return setmetatable({ n_before = self.n_before, history = table.clone(self.history) }, NoRepeat)
end
