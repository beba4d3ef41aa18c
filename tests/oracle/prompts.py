"""The prompts of the generation goldens. All text was written for this project."""

LIGHTHOUSE = (
    "The lighthouse keeper counted the ships each evening and wrote their number in a blue notebook. On calm days "
    "there were nine or ten of them, slow and heavy with timber. When the wind turned north the count fell to two, "
    "and the keeper would leave the lamp burning long after breakfast, in case a late one was still out there."
)

PARAGRAPHS = (
    "A good bench test has three parts.\n\nFirst, you say what you expect, in numbers, before you run anything.\n\n"
    "Second, you run it more than once and keep every result, also the ugly ones.\n\nThird, you"
)

PYTHON = (
    "def merge_sorted(left, right):\n    \"\"\"Merge two sorted lists into one sorted list.\"\"\"\n    merged = []\n"
    "    i = j = 0\n    while i < len(left) and j < len(right):\n        if left[i] <= right[j]:\n"
)

RUST = "/// Returns the largest of `values`, or `None` when it is empty.\nfn largest(values: &[i32]) -> Option<i32> {\n"

JSON_TEXT = '{"name": "Ada", "age": 36, "languages": ["English", "French"], "address": {"street":'

TABLE = "| city | country | river |\n|---|---|---|\n| Paris | France | Seine |\n| Vienna | Austria | Danube |\n| Rome |"

MIXED_SPACE = "one  two   three\tfour\t\tfive\n\n\n  six\r\n    seven        eight\n"


def long_text(n_rooms: int) -> str:
    """An inventory that never repeats a sentence word for word; about 29 tokens a room."""
    colours = ["red", "green", "blue", "white", "black", "yellow", "grey", "brown", "violet", "orange", "pink"]
    things = ["chair", "lamp", "carpet", "mirror", "cupboard", "bookshelf", "vase", "clock", "painting", "stove",
              "desk", "basket", "trunk"]
    people = ["Anna", "Boris", "Chen", "Dalia", "Emeka", "Farah", "Goran"]
    lines = ["This is the inventory of the old house on the hill, written down in one afternoon.\n"]
    for room in range(1, n_rooms + 1):
        colour, thing = colours[room % len(colours)], things[(room * 5) % len(things)]
        other, person = things[(room * 7 + 3) % len(things)], people[(room * 3) % len(people)]
        lines.append(f"Room {room} holds a {colour} {thing} and {room % 6 + 2} small {other}s that belong to {person}.\n")
    lines.append("\nQuestion: who owns the things in room 3, and what colour is the first thing there?\nAnswer:")
    return "".join(lines)


RAW = {
    "capital": "The capital of France is",
    "once": "Once upon a time, in a small village by the sea,",
    "lighthouse": LIGHTHOUSE,
    "paragraphs": PARAGRAPHS,
    "python": PYTHON,
    "rust": RUST,
    "json": JSON_TEXT,
    "table": TABLE,
    "numbers": "1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 233,",
    "arithmetic": "12 + 30 = 42\n7 * 8 = 56\n1000 - 1 = 999\n3.14159 * 2 =",
    "spaces": "   ",
    "newlines": "\n\n",
    "mixed_space": MIXED_SPACE,
    "emoji": "My mood this week: 😀 😅 🎉 👩‍👩‍👧‍👦 🇫🇷 👍🏽 ❤️",
    "cjk": "今天天气很好，我们去公园散步吧。東京は日本の首都です。서울은",
    "cyrillic": "Москва - столица России, а Париж -",
    "arabic": "مرحبا بالعالم، كيف",
    "accents": "Le café était fermé; à côté, l'hôtel naïf où Zoë mangeait des crêpes brûlées",
    "one_letter": "a",
    "shout": "WARNING: DO NOT OPEN THE DOOR WHILE THE MACHINE IS RUNNING!!!",
    "url": "See https://example.org/docs/v2/index.html?lang=en&page=3#install for",
    "long": long_text(73),
}

CHAT = {
    "chat_capital": [{"role": "user", "content": "What is the capital of France?"}],
    "chat_empty": [{"role": "user", "content": ""}],
    "chat_space": [{"role": "user", "content": " \n "}],
    "chat_system": [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "Why is the sky blue?"},
    ],
    "chat_turns": [
        {"role": "user", "content": "My name is Mira."},
        {"role": "assistant", "content": "Hello Mira, how can I help you?"},
        {"role": "user", "content": "What is my name?"},
    ],
    "chat_code": [{"role": "user", "content": "Complete this function:\n```python\n" + PYTHON + "```"}],
    "chat_emoji": [{"role": "user", "content": "Explain this emoji: 🤖👩‍🚀"}],
    "chat_cjk": [{"role": "user", "content": "请用一句话介绍你自己。"}],
    "chat_numbers": [{"role": "user", "content": "Add 17 and 25, then multiply by 3."}],
    "chat_list": [{"role": "user", "content": "Write a haiku about rain.\n\nThen list three rivers."}],
    "chat_special": [{"role": "user", "content": "What does <|im_end|> mean?"}],
    "chat_long": [{"role": "user", "content": long_text(73)}],
}

# Gemma's file is a base model without a template; this is only a token sequence with its turn tokens in it.
GEMMA_TURNS = "<start_of_turn>user\nWhat is the capital of France?<end_of_turn>\n<start_of_turn>model\n"
