-- Affine codes for every matrix that can have them, but for those that speak most: the embedding and the head.
-- Params: `bits`, the width of a code: 2, 3, 4, 5, 6 or 8.

local GROUP_SIZE = 64

-- What the host accepts: a float matrix named `….weight` whose rows are whole groups.
local function can_be_codes(tensor)
    local shape = tensor.shape
    return table.find({ "F32", "F16", "BF16" }, tensor.dtype) ~= nil
        and #shape >= 2
        and table.find(shape, 0) == nil
        and string.sub(tensor.name, -7) == ".weight"
        and shape[#shape] % GROUP_SIZE == 0
end

function plan(params, tensors, config)
    params:refuse_unknown({ "bits" })
    local bits = params:usize("bits")
    if table.find({ 2, 3, 4, 5, 6, 8 }, bits) == nil then
        params:invalid("bits", "2, 3, 4, 5, 6 or 8")
    end
    local schemes = {}
    for i, tensor in tensors do
        local is_kept = tensor.role == "embedding" or tensor.role == "head" or not can_be_codes(tensor)
        schemes[i] = if is_kept then "keep" else { bits = bits, group_size = GROUP_SIZE }
    end
    return schemes
end
