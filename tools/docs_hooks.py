"""What tools/docs.sh adds to mkdocs, so that pages are plain Markdown that reads well in the repository, too.

Some pages of the site are files from outside docs/: CONTRIBUTING.md and the like, each README.md of examples/, with the files
beside it, and the reference, which tools/docs_reference.py makes of the sources. Links between them and the pages of docs/ are
those of the repository; those to a file that is not a page lead to `extra.source_url` or, where that is not set, become the path
of the file.
"""
import os
import re

import docs_reference
from mkdocs.structure.files import File

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROJECT = ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"]
LANGUAGES = {".py": "python", ".sh": "sh", ".json": "json", ".cc": "cpp", ".txt": "cmake"}
FENCED = re.compile(r"^```.*?^```$", flags=re.S | re.M)
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def page_of(path):
    """The page of the site for a file or folder of the repository, or None. Paths are relative to the root, without a `/` at the end."""
    if path.startswith("docs/"):
        return path[len("docs/") :] if os.path.isfile(os.path.join(ROOT, path)) else None
    if path in PROJECT:
        return path.lower()
    folder = path.removesuffix("/README.md")
    if folder.startswith("examples/") and os.path.isfile(os.path.join(ROOT, folder, "README.md")):
        return folder + ".md"
    return docs_reference.page_of(path)


def origin_of(page):
    """The other way: the file that a page is made of."""
    if page.startswith("examples/"):
        return page.removesuffix(".md") + "/README.md"
    return docs_reference.origin_of(page) or next((path for path in PROJECT if path.lower() == page), "docs/" + page)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
        return file.read()


def example(folder):
    """The page of an example: its README.md, and the files beside it."""
    text = read(f"{folder}/README.md")
    for name in sorted(os.listdir(os.path.join(ROOT, folder))):
        language = LANGUAGES.get(os.path.splitext(name)[1])
        if language and os.path.getsize(os.path.join(ROOT, folder, name)) < 8000:
            text += f"\n## {name}\n\n```{language}\n{read(f'{folder}/{name}').rstrip()}\n```\n"
    return text


def on_config(config):
    docs_reference.add_to(config.nav)
    return config


def on_files(files, config):
    for path in PROJECT:
        files.append(File.generated(config, path.lower(), content=read(path)))
    for name in sorted(os.listdir(os.path.join(ROOT, "examples"))):
        if os.path.isfile(os.path.join(ROOT, "examples", name, "README.md")):
            files.append(File.generated(config, f"examples/{name}.md", content=example(f"examples/{name}")))
    for page, text in docs_reference.pages().items():
        files.append(File.generated(config, page, content=text))
    return files


def link(match, page, source_url):
    text, target, anchor = match.group(1), match.group(2), match.group(3) or ""
    if re.match(r"[a-z]+:", target):
        return match.group(0)
    path = os.path.normpath(os.path.join(os.path.dirname(origin_of(page)), target))
    there = page_of(path)
    if there:
        return f"[{text}]({os.path.relpath(there, os.path.dirname(page) or '.')}{anchor})"
    if not os.path.exists(os.path.join(ROOT, path)):
        return match.group(0)  # mkdocs reports a broken link
    if source_url:
        return f"[{text}]({source_url.rstrip('/')}/{path})"
    return f"`{path}`" if path.endswith(text.strip("`")) else f"{text} (`{path}`)"


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri == "cpp.md":
        markdown = docs_reference.with_links(markdown)
    out, end = [], 0
    for block in [*FENCED.finditer(markdown), None]:
        prose = markdown[end : block.start() if block else len(markdown)]
        out.append(LINK.sub(lambda match: link(match, page.file.src_uri, config.extra["source_url"]), prose))
        if block:
            out.append(block.group(0))
            end = block.end()
    return "".join(out)
