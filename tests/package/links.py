"""Checks every relative link of the pages in a folder: files, and anchors in HTML. Prints broken links, and fails if there are any."""

import pathlib
import re
import sys
import urllib.parse
from html.parser import HTMLParser


class Markdown:
    def __init__(self, path):
        # Code has brackets too.
        text = re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
        self.links, self.anchors = re.findall(r"\]\(([^)\s]+)\)", text), None


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.anchors.update(attributes[name] for name in ("id", "name") if attributes.get(name))
        link = attributes.get("src") if tag in ("img", "script") else attributes.get("href")
        if link:
            self.links.append(link)


root = pathlib.Path(sys.argv[1]).resolve()
# print.html repeats all pages, where links to pages stay links to files.
pages = {path: Page(path) for path in root.rglob("*.html") if path.name != "print.html"}
pages.update((path, Markdown(path)) for path in root.rglob("*.md"))
broken = 0
links = 0
for path, page in pages.items():
    for link in page.links:
        url = urllib.parse.urlsplit(link)
        # 404.html has links from the root of a site.
        if url.scheme or url.netloc or url.path.startswith("/"):
            continue
        links += 1
        target = (path.parent / urllib.parse.unquote(url.path)).resolve() if url.path else path
        anchor = urllib.parse.unquote(url.fragment)
        is_there = target.is_file() and root in target.parents
        anchors = pages[target].anchors if target in pages else None
        if not is_there or (anchor and anchors is not None and anchor not in anchors):
            broken += 1
            print(f"{path.relative_to(root)}: {link}")
print(f"{links} links on {len(pages)} pages, {broken} broken")
sys.exit(broken > 0 or links == 0)
