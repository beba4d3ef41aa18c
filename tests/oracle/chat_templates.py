"""Renders the templates of `../fixtures/chat-templates` as `transformers` does, and writes `cases.json` there.

    python tests/oracle/chat_templates.py

The templates are written for this project, in the manner of published ones. Each case has the name of its template,
what it is rendered with, and either the text or the error: `raised` holds the words of `raise_exception`, `failed`
says that rendering failed otherwise.
"""

import json
from pathlib import Path

import jinja2
from transformers.utils.chat_template_utils import _compile_jinja_template

from provenance import write_provenance

FOLDER = Path(__file__).resolve().parent.parent / "fixtures" / "chat-templates"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}

PARAMETERS = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "A city, such as Zürich <or> \"Genève\" & more"},
        "days": {"type": "integer", "default": 3},
        "unit": {"type": "string", "enum": ["C", "F"]},
    },
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "Tells the weather", "parameters": PARAMETERS, "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "noop", "description": "Nothing", "parameters": {"type": "object", "properties": {}}}},
]


def message(role, content, **fields):
    return {"role": role, "content": content, **fields}


def calls(*arguments):
    return [{"id": f"call_000{i}", "type": "function", "function": {"name": "weather", "arguments": a}} for i, a in enumerate(arguments)]


ARGUMENTS = {"city": "Zürich", "days": 3, "exact": True, "none": None, "f": 1.0, "small": 1e-7, "list": [1, "a", {"k": []}]}
ANSWERS = [message("tool", '{"t": 20}', tool_call_id="call_0000"), message("tool", "rain", tool_call_id="call_0001")]
CONVERSATIONS = {
    "one": {"messages": [message("user", " Hi there 🦀 ")]},
    "system": {"messages": [message("system", "Be brief.\n"), message("user", "a"), message("assistant", " b\n"), message("user", "c")]},
    "finished": {"messages": [message("user", "a"), message("assistant", "b")], "add_generation_prompt": False},
    "empty": {"messages": []},
    "unordered": {"messages": [message("assistant", "b"), message("user", "x"), message("user", "y")]},
    "role": {"messages": [message("user", "x"), message("critic", "y")]},
    "tools": {"messages": [message("system", "Help."), message("user", "weather?")], "tools": TOOLS},
    "call": {"messages": [message("user", "weather?"), message("assistant", "", tool_calls=calls(ARGUMENTS)), ANSWERS[0], message("assistant", "It is 20.")], "tools": TOOLS, "add_generation_prompt": False},
    "calls": {"messages": [message("user", "weather?"), message("assistant", None, tool_calls=calls({"city": "X"}, {})), *ANSWERS], "tools": TOOLS},
    "call_id": {"messages": [message("user", "weather?"), message("assistant", None, tool_calls=[{"id": "1", "type": "function", "function": {"name": "noop", "arguments": {}}}])]},
    "reasoning": {"messages": [message("user", "q"), message("assistant", "<think>\nhm\n</think>\n\nans"), message("user", "q2"), message("assistant", "ans2", reasoning_content="deep")], "add_generation_prompt": False},
    "quick": {"messages": [message("user", "q")], "variables": {"enable_thinking": False}},
    "image": {"messages": [message("user", [{"type": "image"}, {"type": "text", "text": "what?"}])]},
}
VARIABLES = {"float": 0.1, "big": 1e16, "integer": 12345678901234567890, "yes": True, "none": None, "text": "Zürich\n\"x\"\t\u0001", "list": [1, [2, {}]], "nested": {"b": 1, "a": {"none": None}}}
CASES = {
    "chatml": CONVERSATIONS,
    "headers": CONVERSATIONS | {"dated": {"messages": [message("user", "x")], "variables": {"date_string": "1 Jan 2026", "custom_tools": TOOLS[1:]}}},
    "instructions": CONVERSATIONS,
    "thinking": CONVERSATIONS,
    "blocks": CONVERSATIONS,
    "python": {"values": {"messages": [message("user", "a café, a Zebra x"), message("assistant", "ok")], "variables": {"variables": VARIABLES}}},
}


def outcome(template, inputs):
    variables = SPECIAL | {"tools": inputs.get("tools"), "documents": None, "add_generation_prompt": inputs["add_generation_prompt"]}
    variables |= {"messages": inputs["messages"]} | inputs.get("variables", {})
    try:
        return {"text": template.render(**variables)}
    except jinja2.exceptions.TemplateError as error:
        # Only `raise_exception` raises this class itself.
        return {"raised": str(error)} if type(error) is jinja2.exceptions.TemplateError else {"failed": str(error)}
    except TypeError as error:
        return {"failed": str(error)}


def main():
    cases = []
    for name, conversations in CASES.items():
        template = _compile_jinja_template((FOLDER / f"{name}.jinja").read_text())
        for case, inputs in conversations.items():
            inputs = {"add_generation_prompt": True} | inputs
            cases.append({"template": name, "case": case, "input": inputs} | outcome(template, inputs))
    (FOLDER / "cases.json").write_text(json.dumps({"special": SPECIAL, "cases": cases}, indent=1) + "\n")
    write_provenance(
        FOLDER,
        command="python tests/oracle/chat_templates.py",
        dtype="text",
        licence="Apache-2.0 OR MIT; templates and conversations made for this project",
        note="cases.json: what transformers' Jinja environment makes of each template.",
        uses=["transformers"],
    )


if __name__ == "__main__":
    main()
