-- A watermark that a statistic finds and a reader does not: at each step the previous token seeds a choice of green
-- tokens, whose logits get a little more. Whoever knows the key counts more green tokens than chance has.
-- Params: `gamma`, the share of green tokens; `delta`, what is added to their logits; `key`, the secret, below
-- 2147483647. Source: Kirchenbauer et al. (2023). The Rust crate `watermark` is its twin.

-- The modulus and the multiplier of Park and Miller (1988).
local P, A = 2147483647, 16807

-- a * b mod P in two halves, because doubles hold whole numbers up to 2^53.
local function product(a, b)
    local high, low = b // 65536, b % 65536
    return (a * high % P * 65536 + a * low) % P
end

-- Where the generator begins after a token; never 0.
local function seed(key, previous)
    local x = (previous + key + 1) % P
    local seed = (product(x, (product(x, x) + key) % P) + 1) % P
    return if seed == 0 then 1 else seed
end

local Watermark = {}
Watermark.__index = Watermark

function describe()
    return { needs = "mask-only", supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    params:refuse_unknown({ "gamma", "delta", "key" })
    local gamma, delta = params:number("gamma"), params:number("delta")
    if not (gamma > 0 and gamma < 1) then
        params:invalid("gamma", "above 0 and below 1")
    end
    local key = params:usize("key")
    if key >= P then
        params:invalid("key", "below 2147483647")
    end
    local watermark = { n_vocab = vocabulary:n_vocab(), green_below = gamma * P, delta = delta, key = key, history = {} }
    return setmetatable(watermark, Watermark)
end

function Watermark:step(step)
    for _, token in step:accepted() do
        table.insert(self.history, token)
    end
    local previous = self.history[#self.history]
    if previous == nil then
        return
    end
    local draw, green_below, delta = seed(self.key, previous), self.green_below, self.delta
    local ids, values, n = {}, {}, 0
    for id = 0, self.n_vocab - 1 do
        draw = draw * A % P
        if draw < green_below then
            n += 1
            ids[n], values[n] = id, delta
        end
    end
    step:bias(ids, values)
end

function Watermark:rollback(n)
    for _ = 1, math.min(n, #self.history) do
        table.remove(self.history)
    end
end

function Watermark:fork()
    local twin = table.clone(self)
    twin.history = table.clone(self.history)
    return setmetatable(twin, Watermark)
end
