-- Best of n: several answers to one question, drawn at once in one batch; the one that agrees most with the
-- others is given.
--
--   tenon run examples/pipelines/best_of_n.lua --profile smollm2-135m --arg n=4 --arg question="What is a tenon?"

local DEFAULT_N = 4
local MAX_TOKENS = 60

local function words_of(text)
    local words, n = {}, 0
    for word in string.gmatch(string.lower(text), "%w+") do
        if not words[word] then
            words[word], n = true, n + 1
        end
    end
    return words, n
end

-- Shared words over all words of both: 1 for equal sets, 0 for strangers.
local function likeness(a, b)
    local in_a, n_a = words_of(a)
    local in_b, n_b = words_of(b)
    local shared = 0
    for word in pairs(in_a) do
        if in_b[word] then
            shared += 1
        end
    end
    local all = n_a + n_b - shared
    return if all == 0 then 1 else shared / all
end

local function ask(question, temperature)
    local messages = { { role = "user", content = question } }
    return model():generate(messages, { max_tokens = MAX_TOKENS, sampling = { temperature = temperature } })
end

function main(args)
    local question = args.question or error({ code = "no-question", message = "give --arg question=TEXT" })
    local n = tonumber(args.n or DEFAULT_N)
    if not n or n < 1 or n % 1 ~= 0 then
        error({ code = "wrong-n", message = "n is a whole number of at least 1" })
    end
    local branches = {}
    for i = 1, n do
        branches[i] = spawn(ask, question, 0.8)
    end
    local answers = join_all(branches)
    local best, best_score
    for i = 1, n do
        local score = 0
        for j = 1, n do
            score += likeness(answers[i].text, answers[j].text)
        end
        if not best_score or score > best_score then
            best, best_score = i, score
        end
    end
    return { answer = answers[best].text, chosen = best, of = n, agreement = best_score / n }
end
