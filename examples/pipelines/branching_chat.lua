-- Branching chat: one conversation is forked; the branches go on side by side, and what they share was computed
-- once.
--
--   tenon run examples/pipelines/branching_chat.lua --profile smollm2-135m \
--       --arg open="Tell me about oak." --arg branches="How hard is it?|Where does it grow?"

local MAX_TOKENS = 40

local function say(session, text)
    session:append({ role = "user", content = text })
    return session:generate({ max_tokens = MAX_TOKENS })
end

function main(args)
    local opening = args.open or error({ code = "no-opening", message = "give --arg open=TEXT" })
    local trunk = model():session()
    trunk:append({ role = "user", content = opening })
    trunk:generate({ max_tokens = MAX_TOKENS, on_text = emit })
    emit("\n")
    local questions, branches = {}, {}
    for question in string.gmatch(args.branches or "", "[^|]+") do
        questions[#questions + 1] = question
        branches[#branches + 1] = spawn(say, trunk:fork(), question)
    end
    local answers, result = join_all(branches), json.array({})
    for i, question in questions do
        local answer = answers[i]
        result[i] = {
            question = question,
            answer = answer.text,
            prompt_tokens = answer.prompt_tokens,
            reused_tokens = answer.reused_tokens,
        }
    end
    -- The trunk knows nothing of its branches, and forgets its answer where it is asked to.
    trunk:trim(1)
    return { branches = result, trunk_messages = trunk:len() }
end
