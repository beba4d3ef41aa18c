-- The answer is a JSON value of a schema. The host compiles it and says by name what of it cannot be enforced.
-- Params: `schema`, a JSON schema; `whitespace`, what may stand between the parts of the value: "none" or "free".
-- The Rust crate `json` is its twin.

local Json = {}
Json.__index = Json

function describe()
    return { needs = "mask-only", supports_rollback = true, supports_fork = true }
end

function open(params, vocabulary)
    params:refuse_unknown({ "schema", "whitespace" })
    local whitespace = params:str("whitespace")
    if whitespace ~= "none" and whitespace ~= "free" then
        params:invalid("whitespace", "none or free")
    end
    return setmetatable({ constraint = vocabulary:json_schema(params:json("schema"), whitespace) }, Json)
end

function Json:step(step)
    step:constrain(self.constraint)
end

-- The host takes the constraint back with the text.
function Json:rollback(n) end

function Json:fork()
    return setmetatable({ constraint = self.constraint:fork() }, Json)
end
