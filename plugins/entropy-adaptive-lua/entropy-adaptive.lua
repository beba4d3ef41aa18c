-- A temperature that follows the entropy: near `low` where the model is sure, near `high` where it is not.
-- Params: `low` and `high`, temperatures; `half`, the entropy in nats at which it lies in the middle.
-- The Rust crate `entropy-adaptive` is its twin.

local EntropyAdaptive = {}
EntropyAdaptive.__index = EntropyAdaptive

function describe()
    return { needs = "full-logits", argmax_invariant = true, supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    params:refuse_unknown({ "low", "high", "half" })
    local function above_zero(key)
        local number = params:number(key)
        if not (number > 0) then
            params:invalid(key, "above 0")
        end
        return number
    end
    local settings = { low = above_zero("low"), high = above_zero("high"), half = above_zero("half") }
    return setmetatable(settings, EntropyAdaptive)
end

function EntropyAdaptive:step(step)
    local entropy = step:entropy()
    local temperature = self.low + (self.high - self.low) * entropy / (entropy + self.half)
    step:apply("temperature", { temperature = temperature })
end

function EntropyAdaptive:rollback(n) end

function EntropyAdaptive:fork()
    return setmetatable(table.clone(self), EntropyAdaptive)
end
