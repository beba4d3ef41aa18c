-- A token is less likely right after itself.
-- Params: `penalty`, which is subtracted from the logit of the token that came last.

local Policy = {}
Policy.__index = Policy

function describe()
    return { needs = "mask-only", supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    params:refuse_unknown({ "penalty" })
    return setmetatable({ penalty = params:number("penalty"), history = {} }, Policy)
end

function Policy:step(step)
    for _, token in step:accepted() do
        table.insert(self.history, token)
    end
    local last = self.history[#self.history]
    if last ~= nil then
        step:bias({ last }, { -self.penalty })
    end
end

function Policy:rollback(n)
    for _ = 1, math.min(n, #self.history) do
        table.remove(self.history)
    end
end

function Policy:fork()
    return setmetatable({ penalty = self.penalty, history = table.clone(self.history) }, Policy)
end
