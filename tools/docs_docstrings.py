"""Docstrings for mkdocstrings, as they are meant: plain text, with indented examples. Markdown would take the
`<X>` of a layout for an HTML element, and `P*d ... P*l` for emphasis."""
import ast
import re
import textwrap

import griffe
from docs_reference import escaped


class PlainText(griffe.Extension):
    def on_object(self, *, obj, **_):
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(docstring):
    """Indented blocks after an empty line become code blocks; all other text has no markup but `code`."""
    out = []
    for block in re.split(r"\n{2,}", docstring):
        if block.startswith("    "):
            example = textwrap.dedent(block)
            out.append(f"```{'python' if is_python(example) else 'text'}\n{example}\n```")
        elif re.match(r"(Args|Raises):\n", block):
            header, *entries = re.split(r"\n    (?! )", block)
            out.append("\n".join([header, *map(entry, entries)]))
        else:
            out.append(escaped(block))
    return "\n\n".join(out)


def is_python(text):
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True


def entry(text):
    """One entry of Args or Raises. If several names share a description, each gets it."""
    names, said = re.match(r"((?:\*{0,2}[\w.]+(?:, )?)+: )?(.*)", text, flags=re.S).groups()
    if names is None:
        return "    " + escaped(text)
    return "\n".join(f"    {name}: {escaped(said)}" for name in names.removesuffix(": ").split(", "))
