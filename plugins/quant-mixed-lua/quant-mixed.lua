-- Mixed precision within a budget: every group of tensors starts at the narrowest width, and the one that gains most
-- for each byte is widened until the budget is spent. The Rust crate `quant-mixed` is its twin and tells the rest.
-- Params: `budget_bits_per_weight`, `bits`, `group_size`, `kl = { embedding, head, attention = {…}, mlp = {…} }`.

local WIDTHS = { 2, 3, 4, 5, 6, 8 }
local FLOATS = { "F32", "F16", "BF16" }
local BYTES = { BOOL = 1, U8 = 1, I8 = 1, U16 = 2, I16 = 2, F16 = 2, BF16 = 2, U32 = 4, I32 = 4, F32 = 4 }
local PARTS = {
    ["embedding"] = "embedding", ["head"] = "head",
    ["attention-q"] = "attention", ["attention-k"] = "attention", ["attention-v"] = "attention",
    ["attention-o"] = "attention",
    ["mlp-gate"] = "mlp", ["mlp-up"] = "mlp", ["mlp-down"] = "mlp", ["expert"] = "mlp",
}
local RANKS = { embedding = 0, attention = 1, mlp = 2, head = 3 }

-- As the host does: a float matrix named `….weight` whose rows are whole groups.
local function can_be(tensor, group_size)
    local shape = tensor.shape
    return table.find(FLOATS, tensor.dtype) ~= nil and #shape >= 2 and table.find(shape, 0) == nil
        and string.sub(tensor.name, -7) == ".weight" and shape[#shape] % group_size == 0
end

local function elements(tensor)
    local n = 1
    for _, dim in tensor.shape do
        n *= dim
    end
    return n
end

local function divergence(kl, part, layer)
    local found
    if layer == nil then
        found = kl:number(part)
    else
        found = (kl:numbers(part) or {})[layer + 1]
        if found == nil then
            kl:invalid(part, `a number for each layer, {layer} among them`)
        end
    end
    if found < 0 then
        kl:invalid(part, "numbers of at least 0")
    end
    return found
end

-- The groups of all tensors that can take the scheme: those of no layer first, then by layer, attention before the
-- feed-forward part. Also which group a tensor belongs to.
local function groups_of(params, tensors, group_size)
    local kl = params:object("kl")
    if kl == nil then
        params:invalid("kl", "the divergence of each part, by layer")
    end
    kl:refuse_unknown({ "embedding", "head", "attention", "mlp" })
    local groups, by_name, of_tensor = {}, {}, {}
    for i, tensor in tensors do
        local part = PARTS[tensor.role]
        if part ~= nil and can_be(tensor, group_size) then
            local name = `{tensor.layer} {part}`
            local group = by_name[name]
            if group == nil then
                local layer = if tensor.layer == nil then -1 else tensor.layer
                group = { layer = layer, rank = RANKS[part], weights = 0, kl = divergence(kl, part, tensor.layer) }
                by_name[name] = group
                table.insert(groups, group)
            end
            group.weights += elements(tensor)
            of_tensor[i] = group
        end
    end
    table.sort(groups, function(a, b)
        return a.layer < b.layer or (a.layer == b.layer and a.rank < b.rank)
    end)
    return groups, of_tensor
end

-- Bytes for the groups, and bits a weight that scales and biases take.
local function budget_of(params, tensors, groups, of_tensor, bits, group_size)
    local kept, weights, widest = 0, 0, 0
    for i, tensor in tensors do
        local n, bytes = elements(tensor), BYTES[tensor.dtype] or 8
        weights += n
        if of_tensor[i] then
            widest = math.max(widest, bytes)
        else
            kept += n * bytes
        end
    end
    local asked = params:number("budget_bits_per_weight")
    if not (asked > 0 and asked <= 32) then
        params:invalid("budget_bits_per_weight", "a number above 0 and at most 32")
    end
    local values_bits = 16 * widest / group_size
    local budget, least = asked * weights / 8 - kept, 0
    for _, group in groups do
        least += group.weights * (bits + values_bits) / 8
    end
    if least > budget then
        local needed = string.format("%.3f", (least + kept) * 8 / weights)
        params:invalid("budget_bits_per_weight", `at least {needed}, which {bits} bits need`)
    end
    return budget - least, values_bits
end

-- Widens the group that gains most for each byte; of equal gains the first group's counts.
local function assign(groups, left, values_bits, bits)
    local function bytes(group, width)
        return group.weights * (width + values_bits) / 8
    end
    local function kl(group, width)
        local left_over = group.kl
        for _ = bits, width - 1 do
            left_over *= 0.25
        end
        return left_over
    end
    for _, group in groups do
        group.bits = bits
    end
    while true do
        local best, best_to, best_cost, most
        for _, group in groups do
            local to
            for _, width in WIDTHS do
                if width > group.bits then
                    to = width
                    break
                end
            end
            if to ~= nil then
                local cost = bytes(group, to) - bytes(group, group.bits)
                local gain = (kl(group, group.bits) - kl(group, to)) / cost
                if cost <= left and (most == nil or gain > most) then
                    best, best_to, best_cost, most = group, to, cost, gain
                end
            end
        end
        if best == nil then
            return
        end
        best.bits = best_to
        left -= best_cost
    end
end

function plan(params, tensors, config)
    params:refuse_unknown({ "budget_bits_per_weight", "bits", "group_size", "kl" })
    local bits, group_size = params:usize("bits"), params:usize("group_size")
    if table.find(WIDTHS, bits) == nil then
        params:invalid("bits", "2, 3, 4, 5, 6 or 8")
    end
    if table.find({ 32, 64, 128 }, group_size) == nil then
        params:invalid("group_size", "32, 64 or 128")
    end
    local groups, of_tensor = groups_of(params, tensors, group_size)
    local left, values_bits = budget_of(params, tensors, groups, of_tensor, bits, group_size)
    assign(groups, left, values_bits, bits)
    local schemes = {}
    for i in tensors do
        local group = of_tensor[i]
        schemes[i] = if group then { bits = group.bits, group_size = group_size } else "keep"
    end
    return schemes
end
