#!/usr/bin/env python3
"""The site of docs/ can be made, strictly: no page outside the navigation, no broken link or anchor. What comes out
asks no other host for anything, and no Markdown is left in it that mkdocs reads otherwise than the repository's pages
do. Every public header and every public name of Python has its place in the reference.

usage: site_test.py ROOT      (77: tools/setup.sh --docs has not been run there)
"""
import html
import os
import re
import subprocess
import sys
import tempfile

root = os.path.abspath(sys.argv[1])
mkdocs = os.path.join(root, "build/docs/bin/mkdocs")
sys.path.insert(0, os.path.join(root, "tools"))
import docs_reference  # noqa: E402

# What a browser fetches by itself: a link that a reader may follow is no such thing.
FETCHED = [r"<(?:script|img|iframe|object|embed|source)\b[^>]*?\b(?:src|data)=[\"']?((?:https?:)?//[^\s\"'>]+)",
           r"<link\b[^>]*?\bhref=[\"']?((?:https?:)?//[^\s\"'>]+)",
           r"url\([\"']?((?:https?:)?//[^\s\"')]+)", r"@import\s+[\"']((?:https?:)?//[^\"']+)"]
# Fences, tables, lists, links and emphasis that came out as text.
LEFT = [r"```[^<\n]*", r"<p>\|[^<\n]*", r"<p>[^<]*\n- [^\n]*", r"\]\([^)\n]*\)", r"\*\*[^<*\n]*"]


def left_in(page):
    article = re.search(r"<article.*?</article>", page, flags=re.S)
    text = re.sub(r"<(pre|code)\b.*?</\1>", "", article.group(0), flags=re.S) if article else ""
    return [found for pattern in LEFT for found in re.findall(pattern, text)]


if not os.path.exists(os.path.join(root, "build/docs/complete")):
    print("test skipped: the site needs mkdocs, which tools/setup.sh --docs installs")
    sys.exit(77)
with tempfile.TemporaryDirectory() as site:
    # Not --quiet, with which warnings do not count.
    done = subprocess.run([mkdocs, "build", "--strict", "--site-dir", site], cwd=root, capture_output=True, text=True,
                          env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False)
    assert done.returncode == 0, f"mkdocs ended with {done.returncode}\n{done.stdout}{done.stderr}"
    pages = 0
    for folder, _, names in os.walk(site):
        for name in names:
            if not name.endswith((".html", ".css", ".svg")):
                continue
            path = os.path.join(folder, name)
            with open(path, encoding="utf-8") as file:
                text = file.read()
            where = os.path.relpath(path, site)
            fetched = [found for pattern in FETCHED for found in re.findall(pattern, text)]
            assert not fetched, f"{where} asks another host: {fetched}"
            assert not left_in(text), f"{where} shows Markdown: {left_in(text)}"
            pages += name.endswith(".html")
    assert os.path.exists(os.path.join(site, "index.html"))

    def text_of(page):
        with open(os.path.join(site, page.removesuffix(".md") + ".html"), encoding="utf-8") as file:
            return re.search(r"<article.*?</article>", file.read(), flags=re.S).group(0)

    headers = docs_reference.headers()
    assert len(headers) > 50, headers
    for header in headers:
        declared = re.findall(r"^(?:class|struct|enum class) (\w+)[^;\n]*\{", docs_reference.read(header), flags=re.M)
        shown = html.unescape(re.sub(r"<[^>]+>", "", text_of(docs_reference.page_of(header))))
        lost = [name for name in declared if not re.search(rf"(?:class|struct) {name}\b", shown)]
        assert not lost and "private:" not in shown, (header, lost)
    for page, path in docs_reference.modules().items():
        names = [full_name for _, full_name in docs_reference.public_names(path)]
        lost = [name for name in names if f'id="{name}"' not in text_of(page)]
        assert names and not lost, (page, lost)
print(f"{pages} pages")
