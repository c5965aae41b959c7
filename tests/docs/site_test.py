#!/usr/bin/env python3
"""The site of docs/ can be made, strictly: no page outside the navigation, no broken link or anchor. What comes out asks no
other host for anything, and no Markdown is left in it that mkdocs reads otherwise than the repository's pages do.

usage: site_test.py ROOT      (77: tools/setup.sh --docs has not been run there)
"""
import os
import re
import subprocess
import sys
import tempfile

root = os.path.abspath(sys.argv[1])
mkdocs = os.path.join(root, "build/docs/bin/mkdocs")

# What a browser fetches by itself: a link that a reader may follow is no such thing.
FETCHED = [r"<(?:script|img|iframe|object|embed|source)\b[^>]*?\b(?:src|data)=[\"']?((?:https?:)?//[^\s\"'>]+)",
           r"<link\b[^>]*?\bhref=[\"']?((?:https?:)?//[^\s\"'>]+)",
           r"url\([\"']?((?:https?:)?//[^\s\"')]+)", r"@import\s+[\"']((?:https?:)?//[^\"']+)"]
# Fences, tables, lists, links and emphasis that came out as text.
LEFT = [r"```[^<\n]*", r"<p>\|[^<\n]*", r"<p>[^<]*\n- [^\n]*", r"\]\([^)\n]*\)", r"\*\*[^<*\n]*"]


def left_in(html):
    article = re.search(r"<article.*?</article>", html, flags=re.S)
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
print(f"{pages} pages")
