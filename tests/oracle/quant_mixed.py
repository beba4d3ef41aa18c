"""What mixed precision within a budget gives, in exact arithmetic: the cases of `quant-mixed` and its twin.

    python tests/oracle/quant_mixed.py > tests/guests/cases/quants.json

Shares no code with the plugins: groups are widened one at a time by exact fractions. Needs nothing but Python.
"""

import json
from fractions import Fraction

WIDTHS = [2, 3, 4, 5, 6, 8]
BYTES = {"F32": 4, "F16": 2, "BF16": 2}
PARTS = {"embedding": "embedding", "head": "head", "mlp-gate": "mlp", "mlp-up": "mlp", "mlp-down": "mlp",
         "expert": "mlp", "attention-q": "attention", "attention-k": "attention", "attention-v": "attention",
         "attention-o": "attention"}
ORDER = ["embedding", "attention", "mlp", "head"]


def tensor(name, shape, role, layer=None, dtype="F16"):
    return {"name": name, "shape": shape, "dtype": dtype, "role": role, "layer": layer}


def model(n_layers, width, feed_forward, vocabulary, dtype="F16", has_head=False):
    tensors = [tensor("model.embed_tokens.weight", [vocabulary, width], "embedding", dtype=dtype)]
    for layer in range(n_layers):
        at = f"model.layers.{layer}"
        for part in "qkvo":
            name = f"{at}.self_attn.{part}_proj.weight"
            tensors.append(tensor(name, [width, width], f"attention-{part}", layer, dtype))
        for part in ["gate", "up", "down"]:
            shape = [width, feed_forward] if part == "down" else [feed_forward, width]
            tensors.append(tensor(f"{at}.mlp.{part}_proj.weight", shape, f"mlp-{part}", layer, dtype))
        tensors.append(tensor(f"{at}.input_layernorm.weight", [width], "norm", layer, "F32"))
    tensors.append(tensor("model.norm.weight", [width], "norm", dtype="F32"))
    if has_head:
        tensors.append(tensor("lm_head.weight", [vocabulary, width], "head", dtype=dtype))
    return tensors


def size(one):
    n = 1
    for dim in one["shape"]:
        n *= dim
    return n


def group_of(one, group_size):
    part = PARTS.get(one["role"])
    fits = one["name"].endswith(".weight") and len(one["shape"]) >= 2 and one["shape"][-1] % group_size == 0
    if part is None or not fits or one["dtype"] not in BYTES:
        return None
    return (-1 if one["layer"] is None else one["layer"], ORDER.index(part))


def plan(tensors, params):
    bits, group_size = params["bits"], params["group_size"]
    groups = sorted({group_of(one, group_size) for one in tensors} - {None})
    members = {group: [one for one in tensors if group_of(one, group_size) == group] for group in groups}
    weights = {group: sum(map(size, members[group])) for group in groups}

    def kl(group, width):
        found = params["kl"][ORDER[group[1]]]
        found = found if group[0] < 0 else found[group[0]]
        return Fraction(found) / 4 ** (width - bits)

    widest = max(BYTES[one["dtype"]] for group in groups for one in members[group])
    values = Fraction(16 * widest, group_size)

    def cost(group, width):
        return weights[group] * (width + values) / 8

    kept = sum(size(one) * BYTES[one["dtype"]] for one in tensors if group_of(one, group_size) is None)
    left = Fraction(params["budget_bits_per_weight"]) * sum(map(size, tensors)) / 8 - kept
    left -= sum(cost(group, bits) for group in groups)
    if left < 0:
        return None
    width = {group: bits for group in groups}
    while True:
        steps = []
        for place, group in enumerate(groups):
            wider = [to for to in WIDTHS if to > width[group]]
            if not wider:
                continue
            price = cost(group, wider[0]) - cost(group, width[group])
            if price <= left:
                gain = (kl(group, width[group]) - kl(group, wider[0])) / price
                steps.append((-gain, place, group, wider[0], price))
        if not steps:
            break
        gains = sorted({step[0] for step in steps})
        assert len(gains) < 2 or gains[1] - gains[0] > gains[0] * Fraction(-1, 10**9), "too near for doubles"
        _, _, group, to, price = min(steps)
        width[group] = to
        left -= price
    schemes = []
    for one in tensors:
        group = group_of(one, group_size)
        schemes.append("keep" if group is None else {"bits": width[group], "group_size": group_size})
    return schemes


def case(name, tensors, budget, bits, group_size, kl):
    params = {"budget_bits_per_weight": budget, "bits": bits, "group_size": group_size, "kl": kl}
    return {"name": name, "tensors": tensors, "params": params, "schemes": plan(tensors, params)}


TINY = model(2, 64, 128, 100)
FALLING = {"embedding": 0.31, "attention": [0.2, 0.04, 0.011], "mlp": [0.5, 0.09, 0.023], "head": 0.7}
FLAT = {"embedding": 0.25, "attention": [0.25, 0.25], "mlp": [0.25, 0.25]}
NOTHING = {"embedding": 0, "attention": [0, 0], "mlp": [0, 0]}
ODD = model(2, 64, 96, 100) + [tensor("model.layers.0.self_attn.q_proj.bias", [64, 64], "bias", 0)]

CASES = [
    case("a little to spend", TINY, 4.5, 3, 64, FALLING),
    case("more to spend", TINY, 5.75, 3, 64, FALLING),
    case("from two bits", TINY, 4.25, 2, 32, FALLING),
    case("everything as wide as it goes", TINY, 32, 2, 64, FALLING),
    case("nothing to spend", TINY, 3.625, 3, 64, FALLING),
    case("too little", TINY, 3.25, 3, 64, FALLING),
    case("equal gains: the first group first", TINY, 4.5, 3, 64, FLAT),
    case("nothing measured is nothing gained", TINY, 4.5, 3, 64, NOTHING),
    case("a head, three layers, float32", model(3, 128, 256, 300, "F32", True), 5, 3, 128, FALLING),
    case("rows that are no whole groups are kept", ODD, 6.5, 3, 64, FALLING),
]

if __name__ == "__main__":
    print("[\n" + ",\n".join(map(json.dumps, CASES)) + "\n]")
