"""The pages of the reference, which tools/docs_hooks.py adds to the site: their text comes from the sources.

Python: a page per module with public names, which `python/reshard/__init__.py` lists; mkdocstrings fills it from the
docstrings, without importing anything. C++: a page per header in `include/reshard/`, made here from the header's own
comments. Links in docs/ to one of these sources lead to its page.
"""
import ast
import os
import re

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = "include/reshard/"
PACKAGE = "python/reshard/"


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def page_of(source):
    """The page that is made of a file of the repository, or None."""
    if source.startswith(INCLUDE) and source.endswith(".h") and os.path.isfile(os.path.join(ROOT, source)):
        return f"reference/cpp/{source[len(INCLUDE):-2]}.md"
    return next((page for page, path in modules().items() if path == source), None)


def origin_of(page):
    """The other way: the file that a page is made of, or None."""
    if page.startswith("reference/cpp/"):
        return f"{INCLUDE}{page[len('reference/cpp/'):-3]}.h"
    return modules().get(page)


def pages():
    """The text of each page of the reference, by its path in the site."""
    made = {page: python_page(path) for page, path in modules().items()}
    for header in headers():
        made[page_of(header)] = header_page(header)
    return made


def add_to(nav):
    """Puts the pages into the part of the navigation that is called Reference."""
    reference = next(part["Reference"] for part in nav if "Reference" in part)
    folders = {}
    for header in headers():
        folder, name = os.path.split(header.removeprefix("include/"))
        folders.setdefault(folder + "/", []).append({name: page_of(header)})
    reference.append({"Python modules": [{title_of(path): page} for page, path in modules().items()]})
    reference.append({"C++ headers": [{folder: files} for folder, files in folders.items()]})


# Python.


def modules():
    """The modules with public names, by their pages."""
    out = {}
    for name in assigned(PACKAGE + "__init__.py", "_MODULES"):
        alone = f"{PACKAGE}{name}.py"
        out[f"reference/python/{name}.md"] = (
            alone if os.path.isfile(os.path.join(ROOT, alone)) else f"{PACKAGE}{name}/__init__.py")
    return out


def public_names(path):
    """What users call each public name of a module, and its full name where it is defined."""
    module = title_of(path)
    names = assigned(PACKAGE + "__init__.py", "_MODULES")[module.removeprefix("reshard.")].split()
    if names:
        return [("reshard." + name, definition(path, name)) for name in names]
    return [(f"{module}.{name}", definition(path, name)) for name in assigned(path, "__all__")]


def assigned(path, name):
    for node in ast.parse(read(path)).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", None) == name:
            return ast.literal_eval(node.value)
    raise KeyError(f"{path} has no {name}")


def definition(path, name):
    """The full name of what a module calls `name`. `reshard.torch.load` could be a module, `reshard.torch.load.load` is
    the function."""
    for node in ast.parse(read(path)).body:
        if isinstance(node, ast.ImportFrom) and node.level == 1 and any(alias.name == name for alias in node.names):
            return f"{title_of(path)}.{node.module}.{name}"
    return f"{title_of(path)}.{name}"


def found(full_name):
    """The file and the syntax tree of a definition; a module's has no tree."""
    parts = full_name.split(".")
    whole = os.path.join("python", *parts)
    if os.path.isfile(os.path.join(ROOT, whole + ".py")):
        return whole + ".py", None
    path = os.path.join("python", *parts[:-1])
    path = path + ".py" if os.path.isfile(os.path.join(ROOT, path + ".py")) else path + "/__init__.py"
    return path, next(node for node in ast.parse(read(path)).body if getattr(node, "name", None) == parts[-1])


def title_of(path):
    return os.path.splitext(path)[0].removesuffix("/__init__").removeprefix("python/").replace("/", ".")


def python_page(path):
    text = f"# {title_of(path)}\n\n::: {title_of(path)}\n"
    text += options(show_root_toc_entry=False, show_root_heading=False, members=False)
    for called, full_name in sorted(public_names(path), key=lambda pair: pair[0].lower()):
        file, node = found(full_name)
        shown = {"heading": called, "toc_label": called.removeprefix("reshard.")}
        if node is None:  # a module: what `reshard` itself does not have
            others = assigned(PACKAGE + "__init__.py", "_DEPRECATED")
            shown["members"] = [name for name in others if f"def {name}(" in read(file)]
        elif isinstance(node, ast.ClassDef):
            # Constructors are shown only for classes that users construct themselves.
            made = next((part for part in node.body if getattr(part, "name", None) == "__init__"), None)
            said = (ast.get_docstring(node) or "") + (ast.get_docstring(made) or "" if made else "")
            shown["merge_init_into_class"] = "Args:" in said
            if title_of(path) == "reshard.dcp":
                shown["members"] = False  # they are for PyTorch to call
        text += f"\n::: {full_name}\n" + options(**shown)
    return text


def options(**shown):
    """As mkdocstrings reads them; what is the same for all is in mkdocs.yml."""
    lines = []
    for key, value in shown.items():
        value = str(value).lower() if isinstance(value, bool) else value
        lines.append(f"      {key}: {value}\n")
    return "    options:\n" + "".join(lines)


# C++.


def headers():
    """Every public header, by its path in the repository."""
    files = [os.path.join(folder, name) for folder, _, names in os.walk(os.path.join(ROOT, INCLUDE)) for name in names]
    return sorted(os.path.relpath(path, ROOT) for path in files if path.endswith(".h"))


# These rely on Google's style, which clang-format enforces: a label is indented by one more than its class.
PRIVATE = re.compile(r"^( *) private:\n.*?(?=^\1 (?:public|protected):|^\1\};)", flags=re.S | re.M)
FUNCTION = r"^(\s*\S.*?\)(?: (?:const|noexcept|override))*)(?: : .*?)? \{"
SHORT_BODY = re.compile(FUNCTION + r".*\}( *//.*)?$")
LONG_BODY = re.compile(FUNCTION + r"(  //.*)?$")
HASH = re.compile(r"(?:^ *//[^\n]*\n)*^ *template <typename H>\n *friend H AbslHashValue\([^;]*;\n", flags=re.M)
FORWARD = re.compile(r"^(?:class|struct) [\w:]+;\n|^namespace \w+ \{\n|^\}  // namespace[^\n]*\n", flags=re.M)
NAMES = [r"(?:class|struct|enum class|enum|union) (\w+)", r"using (\w+)", r"[^=(]*?\b(operator[^\w\s(]+|\w+)\(",
         r"[^=({]*?(\w+)(?:\[\w*\])? ?[={;]"]


def declarations(header):
    """The head comment of a header, and its declarations as users see them, in the groups that blank lines make."""
    head, rest = re.match(r"((?://[^\n]*\n)*)(.*)", read(header), flags=re.S).groups()
    rest = re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*\n", "", rest, flags=re.M)
    rest = re.sub(r"^namespace \w+ \{\n(?:(?:class|struct) \w+;\n)+\}[^\n]*\n", "", rest, flags=re.M)
    rest = FORWARD.sub("", HASH.sub("", without_bodies(PRIVATE.sub("", rest))))
    groups, group = [], []
    for line in rest.split("\n") + [""]:
        # A blank line inside a class does not end it.
        if line or any(text and not text.startswith("//") for text in group) and unclosed(group):
            group.append(line)
        elif group:
            groups.append(re.sub(r"\n\n(?= *\};?$)", "\n", "\n".join(group), flags=re.M))
            group = []
    return head, [group for group in groups if names_in(group)]


def without_bodies(text):
    lines, out, end = text.split("\n"), [], None
    for number, line in enumerate(lines):
        if end is not None:
            end = None if line == end else end
            continue
        comment = line.lstrip().startswith("//")
        long = None if comment else LONG_BODY.match(line)
        if long:
            inner = lines[number + 1]
            end = " " * (len(inner) - len(inner.lstrip()) - 2) + "}"
        cut = long or (None if comment else SHORT_BODY.match(line))
        out.append(f"{cut[1]};{cut[2] or ''}" if cut else line)
    return "\n".join(out)


def unclosed(lines):
    code = re.sub(r"//[^\n]*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])'", "", "\n".join(lines))
    return code.count("{") > code.count("}")


def names_in(group):
    """The names that a group declares, from the lines that are not indented."""
    names = []
    for line in group.split("\n"):
        line = re.sub(r"\[\[.*?\]\] ?", "", line.split("  //")[0])
        line = re.sub(r"^template <.*?> ?", "", line)
        if not line or line[0] in " }/":
            continue
        name = next((found.group(1) for found in (re.match(pattern, line) for pattern in NAMES) if found), None)
        if name and name not in names:
            names.append(name)
    return names


def prose(comment):
    """A comment as Markdown: indented lines stay as they are, all others are text without markup."""
    out, kind = [], ""
    for line in comment.splitlines():
        line = re.sub(r"^// ?", "", line)
        item = re.match(r" ?- ", line)
        was = kind
        if item or kind == "item" and line.startswith("  "):
            kind = "item"
        else:
            kind = "code" if line.startswith("  ") else "text"
        if "code" in (was, kind) and was != kind:
            out += ["", "```text"] if kind == "code" else ["```", ""]
        if kind == "code":
            out.append(line[2:])
        elif item:
            out += [""] * (was != "item") + ["- " + escaped(line[item.end() :])]
        else:
            out.append(("  " if kind == "item" else "") + escaped(line.strip()))
    return "\n".join(out + ["```"] * (kind == "code"))


def escaped(text):
    """Text in which Markdown interprets only what is between backticks."""
    parts = re.split(r"(`[^`]*`)", text)
    for place in range(0, len(parts), 2):
        parts[place] = re.sub(r"([\\*_\[\]~#])", r"\\\1", parts[place].replace("&", "&amp;").replace("<", "&lt;"))
    return "".join(parts)


def with_links(page):
    """docs/cpp.md, with a link for each header that its tables name by folder."""
    out, folder = [], ""
    for line in page.split("\n"):
        folder = next(iter(re.findall(r"^\| `(reshard/\w+/)`", line)), folder)
        first, bar, rest = line[1:].partition("|")
        if folder and line.startswith("| `"):
            line = "|" + re.sub(r"`(\w+\.h)`", rf"[`\1`](../include/{folder}\1)", first) + bar + rest
        out.append(line)
    return "\n".join(out)


def header_page(header):
    path = header.removeprefix("include/")
    head, groups = declarations(header)
    text = f'# {path}\n\n{prose(head)}\n\n```cpp\n#include "{path}"\n```\n'
    for group in groups:
        names = names_in(group)
        text += f"\n## {escaped(', '.join(names[:3]))}{', ...' if len(names) > 3 else ''}\n\n```cpp\n{group}\n```\n"
    return text
