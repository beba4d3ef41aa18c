-- Extraction with retry: each field is written by the model behind an opening quote, checked against the text,
-- and drawn again with another seed where it does not stand there.
--
--   tenon run examples/pipelines/extract_with_retry.lua --profile smollm2-135m \
--       --arg text="Ada Lovelace was born in London in 1815." --arg fields=name,city

local DEFAULT_TRIES = 4
local MAX_TOKENS = 16

local function ask(text, field, try)
    local question = `Text: {text}\nWhich {field} does the text tell? Answer with words of the text.`
    local prompt = model():render({ { role = "user", content = question } }) .. `The {field} is "`
    local options = { max_tokens = MAX_TOKENS, stop = { '"', "\n" } }
    if try == 1 then
        options.sampling = { temperature = 0 }
    else
        options.seed, options.sampling = try, { temperature = 0.7 }
    end
    return model():generate(prompt, options).text
end

-- A value that is not in the text was made up.
local function is_grounded(text, value)
    return value ~= "" and string.find(string.lower(text), string.lower(value), 1, true) ~= nil
end

local function extract(text, field, n_tries)
    for try = 1, n_tries do
        local value = string.match(ask(text, field, try), "^%s*(.-)[%s%.,;]*$")
        if is_grounded(text, value) then
            return { value = value, tries = try }
        end
        print(`{field}, try {try}: "{value}" is not in the text`)
    end
    return { value = json.null, tries = n_tries }
end

function main(args)
    local text = args.text or error({ code = "no-text", message = "give --arg text=TEXT" })
    local n_tries = tonumber(args.tries or DEFAULT_TRIES)
    if not n_tries or n_tries < 1 then
        error({ code = "wrong-tries", message = "tries is a number of at least 1" })
    end
    local names, branches = {}, {}
    for field in string.gmatch(args.fields or "name", "[^,]+") do
        names[#names + 1] = field
        branches[#branches + 1] = spawn(extract, text, field, n_tries)
    end
    local found, result = join_all(branches), {}
    for i, name in names do
        result[name] = found[i]
    end
    return result
end
