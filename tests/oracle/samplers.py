"""Plain forms of the native samplers in float64, written from their published definitions and from nothing of
Tenon's. Writes host/host-sampling/src/tests/goldens.json: for each case the tokens that are left with their
log-probabilities; and some runs of draws.

    python tests/oracle/samplers.py
"""

import json
import math
import pathlib

import numpy as np

ROWS = {
    "spread": [((37 * i) % 101) / 20.0 for i in range(51)],
    "peaked": [8.0, 5.5, 5.25, 1.0, -2.0, -3.5, 0.25, 4.0],
    "flat": [0.5 + 0.01 * ((7 * i) % 13) for i in range(13)],
    "excluded": [2.0, -math.inf, 1.5, 0.5, -math.inf, -1.0],
}


def logsoftmax(x):
    x = np.asarray(x, float)
    m = x.max()
    return x - (m + np.log(np.exp(x - m).sum()))


def only(x, keep):
    """Tokens that are not kept are minus infinity."""
    return np.where(keep, np.asarray(x, float), -np.inf)


def order(x):
    return sorted(range(len(x)), key=lambda i: (-x[i], i))


def entropy(lp):
    p = np.exp(lp)
    return -float(np.sum(np.where(p > 0, p * np.where(p > 0, lp, 0), 0)))


def top_k(x, k):
    keep = np.zeros(len(x), bool)
    keep[order(x)[:k]] = True
    return only(x, keep)


def top_p(x, p):
    """Ascending, keep where the cumulative probability exceeds 1 - p."""
    pr = np.exp(logsoftmax(x))
    ascending = order(x)[::-1]
    keep = np.zeros(len(x), bool)
    total = 0.0
    for i in ascending:
        total += pr[i]
        keep[i] = total > 1 - p
    return only(x, keep)


def min_p(x, p, min_keep):
    lp = logsoftmax(x)
    keep = lp >= lp.max() + math.log(p)
    keep[order(x)[:min_keep]] = True
    return only(x, keep)


def typical_p(x, p):
    lp = logsoftmax(x)
    shift = np.abs(-lp - entropy(lp))
    total, keep = 0.0, np.zeros(len(x), bool)
    for i in sorted([i for i in range(len(x)) if np.isfinite(lp[i])], key=lambda i: (shift[i], order(x).index(i))):
        keep[i] = True
        total += math.exp(lp[i])
        if total > p:
            break
    return only(x, keep)


def xtc(x, threshold, special):
    pr = np.exp(logsoftmax(x))
    above = pr > threshold
    if not above.any():
        return np.asarray(x, float)
    m = pr[above].min()
    keep = pr <= m
    for i in special:
        keep[i] = True
    return only(x, keep)


def top_n_sigma(x, n):
    v = np.asarray(x, float)
    finite = v[np.isfinite(v)]
    return only(v, v >= finite.max() - n * finite.std())


def dynamic_temperature(x, temperature, spread, exponent):
    lp = logsoftmax(x)
    count = np.isfinite(lp).sum()
    low, high = max(0.0, temperature - spread), temperature + spread
    t = low + (high - low) * (entropy(lp) / math.log(count)) ** exponent
    return np.asarray(x, float) / t


def mirostat_v2_mask(x, mu):
    lp = logsoftmax(x)
    keep = -lp / math.log(2) <= mu
    keep[order(x)[0]] = True
    return only(x, keep)


def mirostat_v1_mask(x, mu, m):
    lp = logsoftmax(x)
    o = order(x)
    p = [math.exp(lp[i]) for i in o if np.isfinite(lp[i])]
    num = den = 0.0
    for i in range(min(m, len(p)) - 1):
        t = math.log((i + 2) / (i + 1))
        num += t * math.log(p[i] / p[i + 1])
        den += t * t
    s = num / den
    e = s - 1
    k = (e * 2**mu / (1 - len(x) ** (-e))) ** (1 / s)
    return top_k(x, max(1, int(k)))


A, B, C = 0.17883277, 0.28466892, 0.55991073


def hlg(x, gain, w, b, t, pivot, offset):
    lp = logsoftmax(x)
    if pivot == "top":
        base = lp.max()
    elif pivot == "entropy":
        base = -entropy(lp)
    else:
        total = 0.0
        for i in order(x):
            total += math.exp(lp[i])
            if total >= 0.5:
                base = lp[i]
                break
    out = []
    for v in lp - (base - offset):
        if v == -math.inf:
            out.append(v)
        elif v >= w:
            out.append(gain * w + gain * b * math.log(max(1 + (v - w) / b, 1e-9)))
        elif v < -w:
            out.append(-gain * w - gain * t * math.log(max(1 + (-v - w) / t, 1e-9)))
        else:
            out.append(gain * v)
    return np.array(out)


def each(x, f):
    lp = logsoftmax(x)
    top = lp.max()
    return np.array([f(v - top) if v > -math.inf else -math.inf for v in lp])


def knee(e):
    return math.sqrt(3) * math.sqrt(e) if e <= 1 / 12 else A * math.log(12 * e - B) + C


def gamma(peak):
    return 1.2 + 0.42 * math.log10(peak / 1000)


def oetf(x):
    return each(x, lambda d: math.log(max(knee(math.exp(d)), 1e-9)))


def eotf(x, peak):
    def f(d):
        e = math.exp(d)
        ln = 2 * d - math.log(3) if e < 0.5 else math.log((math.exp((e - C) / A) + B) / 12)
        return gamma(peak) * ln

    return each(x, f)


def pipeline(x, alpha, peak):
    return each(x, lambda d: alpha * knee(math.exp(d)) ** gamma(peak))


SHAPER = dict(window=10.0, x_mid=0.55, y_mid=0.5, x_foot=0.2, y_foot=0.18, power=2.0, slope=0.7, shoulder=0.35,
              peak_luminance=1200.0, target_gap=15.0)


def shaper(x):
    W, xM, yM, xF, yF, p, s, a = 10, 0.55, 0.5, 0.2, 0.18, 2, 0.7, 0.35
    d = xM - xF
    k = (yM - s * d - yF) / d**p
    sF = s + k * p * d ** (p - 1)
    det = -(xF**4)
    e = (2 * yF * xF - xF**2 * sF) / det
    f = (xF**3 * sF - 3 * yF * xF**2) / det

    def y(u):
        if u >= xM:
            v = yM + a * math.log(max(1 + (s / a) * (u - xM), 1e-9))
        elif u >= xF:
            v = yM - s * (xM - u) - k * (xM - u) ** p
        else:
            v = e * u**3 + f * u**2
        return max(v, 0)

    def r(delta):
        u = min(max(delta / W + 1, 0), 1)
        return max(y(u) / y(1), 1e-9) ** gamma(1200)

    scale = 15 / max(1e-6, 1 - r(-4))
    return each(x, lambda delta: scale * r(delta))


def curve(x, points):
    pts = sorted((math.log(max(a, 1e-9) / 100), math.log(max(b, 1e-9) / 100)) for a, b in points)
    xs, ys = [p[0] for p in pts], [p[1] for p in pts]
    n = len(pts)
    h = [xs[i + 1] - xs[i] for i in range(n - 1)]
    d = [(ys[i + 1] - ys[i]) / h[i] for i in range(n - 1)]
    m = [d[0]] + [0.0] * (n - 2) + [d[-1]]
    for i in range(1, n - 1):
        if d[i - 1] * d[i] > 0:
            w1, w2 = 2 * h[i] + h[i - 1], h[i] + 2 * h[i - 1]
            m[i] = (w1 + w2) / (w1 / d[i - 1] + w2 / d[i])

    def at(v):
        if v < xs[0]:
            return ys[0] + max(m[0], 1) * (v - xs[0])
        if v >= xs[-1]:
            return ys[-1] + m[-1] * (v - xs[-1])
        i = max(j for j in range(n) if xs[j] <= v)
        t = (v - xs[i]) / h[i]
        return ((1 + 2 * t) * (1 - t) ** 2 * ys[i] + t * (1 - t) ** 2 * h[i] * m[i]
                + t * t * (3 - 2 * t) * ys[i + 1] + t * t * (t - 1) * h[i] * m[i + 1])

    return np.array([at(v) if v > -math.inf else -math.inf for v in logsoftmax(x)])


HLG = dict(gain=1.25, width=4.0, shoulder=4.0, toe=6.0, offset=6.0)
POINTS = [(0.01, 0.02), (1, 0.5), (10, 4), (50, 60), (100, 100)]
CASES = [
    ({"sampler": "top_k", "k": 7}, lambda x: top_k(x, 7)),
    ({"sampler": "top_p", "p": 0.8}, lambda x: top_p(x, 0.8)),
    ({"sampler": "min_p", "p": 0.3, "min_keep": 1}, lambda x: min_p(x, 0.3, 1)),
    ({"sampler": "min_p", "p": 0.9, "min_keep": 4}, lambda x: min_p(x, 0.9, 4)),
    ({"sampler": "typical_p", "p": 0.5}, lambda x: typical_p(x, 0.5)),
    ({"sampler": "typical_p", "p": 0.95}, lambda x: typical_p(x, 0.95)),
    ({"sampler": "xtc", "probability": 1.0, "threshold": 0.05}, lambda x: xtc(x, 0.05, [0])),
    ({"sampler": "top_n_sigma", "n": 1.0}, lambda x: top_n_sigma(x, 1.0)),
    ({"sampler": "top_n_sigma", "n": 2.0}, lambda x: top_n_sigma(x, 2.0)),
    ({"sampler": "temperature", "temperature": 0.6}, lambda x: np.asarray(x, float) / 0.6),
    ({"sampler": "dynamic_temperature", "temperature": 0.8, "range": 0.5, "exponent": 1.5},
     lambda x: dynamic_temperature(x, 0.8, 0.5, 1.5)),
    ({"sampler": "mirostat_v2", "tau": 1.5, "eta": 0.1}, lambda x: mirostat_v2_mask(x, 3.0)),
    ({"sampler": "mirostat_v1", "tau": 1.0, "eta": 0.1, "m": 20}, lambda x: mirostat_v1_mask(x, 2.0, 20)),
    ({"sampler": "hlg", "pivot": "top", **HLG}, lambda x: hlg(x, 1.25, 4, 4, 6, "top", 6)),
    ({"sampler": "hlg", "pivot": "entropy", **HLG}, lambda x: hlg(x, 1.25, 4, 4, 6, "entropy", 6)),
    ({"sampler": "hlg", "pivot": "median", **HLG}, lambda x: hlg(x, 1.25, 4, 4, 6, "median", 6)),
    ({"sampler": "hlg_oetf"}, oetf),
    ({"sampler": "hlg_eotf", "peak_luminance": 1000.0}, lambda x: eotf(x, 1000)),
    ({"sampler": "hlg_pipeline", "alpha": 5.0, "peak_luminance": 1000.0}, lambda x: pipeline(x, 5, 1000)),
    ({"sampler": "hlg_shaper", **SHAPER}, shaper),
    ({"sampler": "curve", "points": POINTS}, lambda x: curve(x, POINTS)),
    ({"sampler": "curve", "points": [(0.001, 0.001), (100, 100)]}, lambda x: np.asarray(x, float)),
]


def threefry(key, counter):
    """Threefry-2x32 with 20 rounds."""
    mask, k = 0xFFFFFFFF, [key[0], key[1], key[0] ^ key[1] ^ 0x1BD11BDA]
    a, b = (counter[0] + k[0]) & mask, (counter[1] + k[1]) & mask
    for group in range(5):
        for r in ([13, 15, 26, 6], [17, 29, 16, 24])[group % 2]:
            a = (a + b) & mask
            b = ((b << r) | (b >> (32 - r))) & mask
            b ^= a
        a = (a + k[(group + 1) % 3]) & mask
        b = (b + k[(group + 2) % 3] + group + 1) & mask
    return a, b


def words(key, n):
    h, o = n // 2, n % 2
    out = [0] * n
    for j in range(h):
        out[j], out[j + h + o] = threefry(key, (j, j + h + o))
    if o:
        out[h] = threefry(key, (h, 0))[0]
    return out


def uniform(word):
    return min(np.float32(word) / np.float32(4294967295), np.float32(1) - np.float32(2**-24))


def categorical(key, x):
    g = [-math.log(-math.log(u)) if (u := float(uniform(w))) > 0 else -math.inf for w in words(key, len(x))]
    return max(range(len(x)), key=lambda i: (x[i] + g[i], -i))


def step_key(seed, step):
    key = seed ^ ((step + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1))
    return key >> 32, key & 0xFFFFFFFF


def draw_xtc(x, seed, step, probability, threshold):
    """The key is split in two: the first for the uniform, the second for the draw."""
    four = words(step_key(seed, step), 4)
    own, rest = four[:2], four[2:]
    if uniform(words(own, 1)[0]) <= probability:
        x = xtc(x, threshold, [])
    return categorical(rest, logsoftmax(x))


def mirostat_v2_run(x, seed, steps, tau, eta):
    mu, tokens = 2 * tau, []
    for step in range(steps):
        kept = mirostat_v2_mask(x, mu)
        lp = logsoftmax(kept)
        token = categorical(step_key(seed, step), lp)
        mu -= eta * (-lp[token] / math.log(2) - tau)
        tokens.append(token)
    return tokens


def left(x):
    lp = logsoftmax(x)
    return [[i, float(v)] for i, v in enumerate(lp) if v > -math.inf]


def main():
    cases = []
    for row, logits in ROWS.items():
        x = np.array(logits)
        for sampler, plain in CASES:
            cases.append({"row": row, "chain": [sampler], "left": left(plain(x))})
        # A temperature before a filter is part of its probabilities; after it, it is not.
        t = {"sampler": "temperature", "temperature": 2.0}
        p = {"sampler": "top_p", "p": 0.8}
        n = {"sampler": "typical_p", "p": 0.6}
        cases.append({"row": row, "chain": [t, p], "left": left(top_p(x / 2, 0.8))})
        cases.append({"row": row, "chain": [p, t], "left": left(top_p(x, 0.8) / 2)})
        cases.append({"row": row, "chain": [t, n], "left": left(typical_p(x / 2, 0.6))})
        cases.append({"row": row, "chain": [{"sampler": "top_k", "k": 5}, t, p], "left": left(top_p(top_k(x, 5) / 2, 0.8))})
    spread = np.array(ROWS["spread"])
    golden = [27, 35, 19, 29, 38, 19, 5, 19, 43, 38, 38, 18]  # of MLX 0.31.2: seed 0, T 1, top-p 0.9
    assert [categorical(step_key(0, i), logsoftmax(top_p(spread, 0.9))) for i in range(12)] == golden
    draws = {
        "xtc": [draw_xtc(spread, 0, i, 0.5, 0.03) for i in range(24)],
        "mirostat_v2": mirostat_v2_run(spread, 7, 24, 2.0, 0.6),
    }
    rows = {name: [None if v == -math.inf else v for v in row] for name, row in ROWS.items()}
    path = pathlib.Path(__file__).parents[2] / "host/host-sampling/src/tests/goldens.json"
    lines = ",\n".join("  " + json.dumps(case) for case in cases)
    path.write_text('{\n"rows": ' + json.dumps(rows) + ',\n"draws": ' + json.dumps(draws) + ',\n"cases": [\n' + lines + "\n]\n}\n")


if __name__ == "__main__":
    main()
