"""A corpus of varied lines and the ids that `transformers` gives each of them, for both tokenizers.

All text is made here, from short phrases written for this project and from seeded chance.
"""

import json
import random
import unicodedata
from pathlib import Path

from transformers import AutoTokenizer

from provenance import sha256, write_provenance

SEED = 20261130
N_LINES = 2400

PHRASES = {
    "english": ["the quick tests run before breakfast", "nobody's counting, but we're late", "I can't, won't, shouldn't've", "Her e-mail (dated 3 May) says: \"no\".", "THE END", "state-of-the-art", "it's 5 o'clock; they'll've left, I'd say", "IT'S WE'RE they'D"],
    "french": ["où est la bibliothèque ?", "l'été dernier, j'ai mangé des crêpes", "« Ça alors ! » dit-elle", "œuvre, cœur, naïve"],
    "german": ["Die Straße führt über die Brücke", "Donaudampfschifffahrtsgesellschaftskapitän", "Größe: 12,5 m²", "„Guten Tag“, sagte er"],
    "spanish": ["¿Dónde está el niño?", "¡Qué alegría!", "mañana será otro día"],
    "polish": ["Zażółć gęślą jaźń", "wszystkie dzieci śpią"],
    "turkish": ["İstanbul'da ılık bir gün", "ağaç, çiçek, şeker"],
    "vietnamese": ["Hôm nay trời đẹp quá", "tiếng Việt có nhiều dấu"],
    "russian": ["Сегодня хорошая погода", "Ёлка стоит в углу", "объявление №7"],
    "ukrainian": ["Їжак їсть яблуко", "п'ять тихих вечорів"],
    "greek": ["Καλημέρα κόσμε", "η θάλασσα είναι ήρεμη"],
    "hebrew": ["שלום עולם", "הַיּוֹם יוֹם יָפֶה"],
    "arabic": ["مرحبا بالعالم", "اللُّغَةُ العَرَبِيَّةُ جَمِيلَة", "١٢٣٤٥"],
    "persian": ["می‌خواهم بروم", "کتاب‌های خوب"],
    "hindi": ["नमस्ते दुनिया", "मैं किताब पढ़ रहा हूँ", "१२३४५"],
    "bengali": ["আমি ভাত খাই", "বাংলা ভাষা"],
    "tamil": ["வணக்கம் உலகம்", "தமிழ் மொழி"],
    "telugu": ["నమస్కారం ప్రపంచం"],
    "kannada": ["ನಮಸ್ಕಾರ ಜಗತ್ತು"],
    "malayalam": ["നമസ്കാരം ലോകമേ"],
    "sinhala": ["ආයුබෝවන් ලෝකය"],
    "thai": ["สวัสดีชาวโลก", "วันนี้อากาศดีมาก"],
    "lao": ["ສະບາຍດີ"],
    "khmer": ["សួស្តីពិភពលោក"],
    "burmese": ["မင်္ဂလာပါ"],
    "tibetan": ["བཀྲ་ཤིས་བདེ་ལེགས"],
    "georgian": ["გამარჯობა მსოფლიო"],
    "armenian": ["Բարեւ աշխարհ"],
    "amharic": ["ሰላም ልዑል"],
    "chinese": ["今天天气很好", "我们去图书馆看书，好吗？", "繁體中文也要測試", "２０２６年１１月３０日"],
    "japanese": ["これはテストです。", "カタカナとひらがな", "東京タワーへ行きました", "ﾊﾝｶｸ ｶﾅ"],
    "korean": ["안녕하세요 세계", "오늘은 날씨가 좋네요", "ㄱㄴㄷ ㅏㅑㅓ"],
    "cherokee": ["ᎣᏏᏲ ᎡᎶᎯ"],
    "runes": ["ᚠᚢᚦᚨᚱᚲ"],
    "math": ["∀x∈ℝ: x² ≥ 0", "∑_{i=1}^{n} i = n(n+1)/2", "𝒜𝓑𝔠 𝟙𝟚𝟛", "α ≠ β ⇒ ∃γ"],
    "symbols": ["© ® ™ § ¶ † ‡", "← ↑ → ↓ ⇄", "♠♥♦♣ ♪♫", "½ ¼ ¾ ⅓", "€ £ ¥ ₹ ₿", "…—–‐‑‘’“”", "①②③ Ⅳ"],
}

CODE = [
    "for (int i = 0; i < n; ++i) { sum += a[i]; }",
    "    return {k: v for k, v in pairs if v is not None}",
    "\tif err != nil {\n\t\treturn nil, fmt.Errorf(\"open %q: %w\", path, err)\n\t}",
    "fn main() {\n    let xs: Vec<u32> = (0..10).map(|x| x * x).collect();\n    println!(\"{xs:?}\");\n}",
    "SELECT name, COUNT(*) FROM users WHERE age >= 21 GROUP BY name ORDER BY 2 DESC;",
    "<div class=\"row\"><a href='/x?y=1&amp;z=2'>link</a><br/></div>",
    "const f = async (x) => ({ ...x, y: x?.y ?? 0 });",
    "#include <stdio.h>\r\nint main(void)\r\n{\r\n\tputs(\"hi\");\r\n\treturn 0;\r\n}\r\n",
    "{\"a\": [1, 2.5e-3, null, true], \"b\": {\"c\": \"d\\n\"}}",
    "key: value\nlist:\n  - one\n  - two\n",
    "$ git log --oneline | head -n 20 && echo done >> out.txt 2>&1",
    "public static void main(String[] args) throws IOException {",
    "x = np.einsum('bthd,bshd->bhts', q, k) / math.sqrt(d)",
    "\\begin{align} E &= mc^2 \\\\ F &= ma \\end{align}",
    "| a | b |\n|:--|--:|\n| 1 | 2 |",
    "```python\nprint('x')\n```",
    "local t = setmetatable({}, {__index = function(_, k) return k .. '!' end})",
    "let rec fact n = if n <= 1 then 1 else n * fact (n - 1)",
    "((lambda (x) (* x x)) 5)",
    "^(?:[a-z0-9]+[._-])*[a-z0-9]+@(?:[a-z0-9-]+\\.)+[a-z]{2,}$",
    "0xDEADBEEF 0b1010 1_000_000 1e-9 .5 5. -0",
]

EMOJI = ["😀", "👩‍👩‍👧‍👦", "👍🏽", "🇫🇷🇯🇵", "❤️", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "👩🏾‍🚀", "1️⃣#️⃣", "🤷‍♂️", "🧑‍🤝‍🧑", "🫠", "☺", "☺️", "🐻‍❄️", "🎉🎉🎉"]

URLS = [
    "https://example.org/a/b.html?x=1&y=%20z#top", "http://127.0.0.1:8080/v1/chat/completions", "mail.name+tag@example.com",
    "ftp://files.example.net/pub/README.TXT", "www.example.com", "C:\\Users\\me\\file.txt", "/usr/share/doc/../x", "192.168.0.1/24",
    "2001:db8::ff00:42:8329", "#hashtag @mention", "v1.2.3-rc.4+build.5", "550e8400-e29b-41d4-a716-446655440000",
]

SPECIAL = [
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<repo_name>", "<file_sep>", "<gh_stars>", "<jupyter_code>", "<empty_output>",
    "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>", "<unused0>", "<unused99>",
    "[multimodal]", "<table>", "</table>", "<h1>", "<code>", "<0x0A>", "<0xFF>", "<|im_start", "im_end|>", "< bos >", "<s>", "</s>", "[INST]",
]

SPACES = [" ", "  ", "   ", "    ", "\t", "\t\t", "\n", "\n\n", "\n\n\n", "\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u200b", "\ufeff", "\x0b", "\x0c", "\u2028", "\u0085"]

SCRIPT_BLOCKS = [
    (0x00A1, 0x024F), (0x0370, 0x03FF), (0x0400, 0x052F), (0x0590, 0x05FF), (0x0600, 0x06FF), (0x0900, 0x097F), (0x0980, 0x09FF),
    (0x0B80, 0x0BFF), (0x0E00, 0x0E7F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x1E00, 0x1FFF), (0x2000, 0x206F),
    (0x2190, 0x23FF), (0x2500, 0x27BF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xE0FF), (0xFB00, 0xFB4F),
    (0xFF00, 0xFFEF), (0x10000, 0x100FF), (0x1D400, 0x1D7FF), (0x1F300, 0x1FAFF), (0x20000, 0x200FF), (0xE0000, 0xE007F),
]


def fixed_lines() -> list[str]:
    lines = ["", " ", "  ", "\n", "\t", "\r\n", "a", " a", "a ", "A", "0", "é", "e\u0301", "\u2581", "\u2581a\u2581b", "\x00", "\x7f", "\ufffd", "\u0300"]
    lines += [p for phrases in PHRASES.values() for p in phrases] + CODE + EMOJI + URLS + SPECIAL + SPACES
    lines += [s * n for s in (" ", "\n", "\t", "\r\n", "a", "-", "=", "_", "0", "é", "😀", "の", "ab ", "!?") for n in (2, 3, 5, 8, 16, 17, 30, 31, 32, 33, 40, 64, 65)]
    lines += [chr(c) for c in range(0x00, 0x100)]
    lines += [f"{left}{s}{right}" for s in SPECIAL[:24] for left, right in (("x", "y"), ("x ", " y"), ("\n", "\n"))]
    lines += [f"{a}{s}{b}" for s in SPACES for a, b in (("a", "b"), ("", "b"), ("a", ""), ("1", "2"), (".", "("))]
    lines += [str(10**n) for n in range(12)] + [f"{n:,}" for n in (1234, 1234567, 9876543210)] + ["3.14159265358979", "1/2", "50%", "$9.99", "٣٫١٤", "２３"]
    lines += [unicodedata.normalize(form, p) for form in ("NFD", "NFKD") for lang in ("french", "vietnamese", "korean", "german", "hindi") for p in PHRASES[lang]]
    return lines


def sentence(rng: random.Random) -> str:
    words = [w for p in PHRASES[rng.choice(list(PHRASES))] for w in p.split()]
    return " ".join(rng.choice(words) for _ in range(rng.randint(2, 14)))


def mixture(rng: random.Random) -> str:
    parts = [
        lambda: sentence(rng), lambda: rng.choice(CODE), lambda: rng.choice(EMOJI), lambda: rng.choice(URLS), lambda: rng.choice(SPECIAL),
        lambda: str(rng.randint(0, 10**9)), lambda: rng.choice(PHRASES["english"]),
    ]
    return "".join(rng.choice(parts)() + rng.choice(SPACES + ["", "", ", ", ". ", "/", "'"]) for _ in range(rng.randint(2, 5)))


def random_unicode(rng: random.Random) -> str:
    def one() -> str:
        low, high = rng.choice(SCRIPT_BLOCKS)
        return chr(rng.randint(low, high))

    return "".join(one() if rng.random() < 0.9 else rng.choice(SPACES) for _ in range(rng.randint(1, 20)))


def one_script(rng: random.Random) -> str:
    low, high = rng.choice(SCRIPT_BLOCKS)
    return "".join(chr(rng.randint(low, high)) if rng.random() < 0.85 else " " for _ in range(rng.randint(3, 24)))


def ascii_noise(rng: random.Random) -> str:
    return "".join(chr(rng.randint(0x20, 0x7E)) for _ in range(rng.randint(1, 48)))


def long_word(rng: random.Random) -> str:
    letters = rng.choice(["abcdefghijklmnopqrstuvwxyz", "ABCDEFabcdef0123456789", "абвгдежзиклмнопрст", "äöüßéèçñ", "かきくけこさしすせそ"])
    return "".join(rng.choice(letters) for _ in range(rng.randint(40, 200)))


def space_runs(rng: random.Random) -> str:
    return "".join(rng.choice(SPACES) * rng.randint(1, 4) + rng.choice(["a", "Word", "7", "é", "{", "の", ""]) for _ in range(rng.randint(1, 8)))


def contractions(rng: random.Random) -> str:
    return " ".join(rng.choice(["I", "you", "WE", "dog", "É", "5", "_x"]) + rng.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "’s", "'S", "''", "'x"]) for _ in range(rng.randint(1, 6)))


def lines() -> list[str]:
    rng = random.Random(SEED)
    out = fixed_lines()
    makers = [sentence, sentence, mixture, mixture, random_unicode, one_script, ascii_noise, long_word, space_runs, contractions]
    while len(out) < N_LINES:
        out.append(rng.choice(makers)(rng))
    return out


def dump_lines(path: Path, values):
    path.write_text("".join(json.dumps(v, ensure_ascii=True, separators=(",", ":")) + "\n" for v in values), encoding="ascii")


def make(work: Path, models: Path, fixtures: Path, command: str):
    texts = lines()
    for text in texts:
        text.encode("utf-8")  # no lone surrogates
    shared = fixtures / "tokenizer-lines"
    shared.mkdir(parents=True, exist_ok=True)
    dump_lines(shared / "lines.jsonl", texts)
    write_provenance(shared, command=command, dtype="text", seed=SEED, licence="Apache-2.0 OR MIT; made for this project",
                     note="lines.jsonl: one JSON string a line (all non-ASCII escaped), shared by the tokenizer-* folders.")
    sources = {"smollm2": ("smollm2-f32", "SmolLM2-135M-Instruct.Q4_1.gguf"), "gemma3": ("gemma3-f32", "gemma-3-270m-q4_k_m.gguf")}
    for name, (folder, gguf_name) in sources.items():
        tokenizer = AutoTokenizer.from_pretrained(work / folder)
        out = fixtures / f"tokenizer-{name}"
        out.mkdir(parents=True, exist_ok=True)

        def encode(text, **kwargs):
            return tokenizer(text, **kwargs)["input_ids"]

        ids = [encode(t, add_special_tokens=False) for t in texts]
        dump_lines(out / "ids.jsonl", ids)
        plain = [encode(t, add_special_tokens=False, split_special_tokens=True) for t in texts]
        decoded = [tokenizer.decode(i, skip_special_tokens=False) for i in ids]
        samples = list(range(0, len(texts), len(texts) // 60))
        extra = {
            "with_special": {str(i): encode(texts[i]) for i in samples},
            "special_as_text": {str(i): p for i, (p, q) in enumerate(zip(plain, ids)) if p != q},
            "decode_differs": {str(i): d for i, (d, t) in enumerate(zip(decoded, texts)) if d != t},
        }
        (out / "extra.json").write_text(json.dumps(extra, indent=0, separators=(",", ":")) + "\n", encoding="ascii")
        n_ids = sum(map(len, ids))
        print(f"{name}: {len(ids)} lines, {n_ids} ids, {len(extra['special_as_text'])} differ as plain text, "
              f"{len(extra['decode_differs'])} do not decode to themselves")
        write_provenance(
            out, command=command, dtype="ids", seed=SEED, licence="ids of lines made for this project",
            note="ids.jsonl: line i holds the ids of ../tokenizer-lines/lines.jsonl line i, add_special_tokens=False. extra.json: "
            "with_special (line -> ids with add_special_tokens=True), special_as_text (lines whose ids differ with "
            "split_special_tokens=True), decode_differs (lines whose ids do not decode to the same text -> what they decode to).",
            uses=["transformers", "tokenizers", "gguf"], inputs={gguf_name: sha256(models / gguf_name)},
        )
