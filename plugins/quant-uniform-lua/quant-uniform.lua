-- One affine scheme for every matrix that can take it, but for the roles that are kept.
-- Params: `bits`, `group_size`, `keep`, a list of roles. The Rust crate `quant-uniform` is its twin.

local ROLES = {
    "embedding", "attention-q", "attention-k", "attention-v", "attention-o", "mlp-gate", "mlp-up", "mlp-down",
    "router", "expert", "head", "norm", "bias", "other",
}
local FLOATS = { "F32", "F16", "BF16" }

-- As the host does: a float matrix named `….weight` whose rows are whole groups.
local function can_be(tensor, group_size)
    local shape = tensor.shape
    return table.find(FLOATS, tensor.dtype) ~= nil and #shape >= 2 and table.find(shape, 0) == nil
        and string.sub(tensor.name, -7) == ".weight" and shape[#shape] % group_size == 0
end

function plan(params, tensors, config)
    params:refuse_unknown({ "bits", "group_size", "keep" })
    local bits, group_size = params:usize("bits"), params:usize("group_size")
    if table.find({ 2, 3, 4, 5, 6, 8 }, bits) == nil then
        params:invalid("bits", "2, 3, 4, 5, 6 or 8")
    end
    if table.find({ 32, 64, 128 }, group_size) == nil then
        params:invalid("group_size", "32, 64 or 128")
    end
    local keep = params:strs("keep") or {}
    for _, role in keep do
        if table.find(ROLES, role) == nil then
            params:invalid("keep", "a list of roles")
        end
    end
    local schemes = {}
    for i, tensor in tensors do
        local is_kept = table.find(keep, tensor.role) ~= nil or not can_be(tensor, group_size)
        schemes[i] = if is_kept then "keep" else { bits = bits, group_size = group_size }
    end
    return schemes
end
