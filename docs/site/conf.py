"""The docs site: the project's own Markdown pages, as they are, with search and API reference.

    sphinx-build -W -b html -c docs/site . out/site

The pages are written to be read in a forge too, so they hold no directives: the contents of the
site follow from the links of docs/index.md. The site needs no network to be read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import dlsched

ROOT = Path(__file__).resolve().parents[2]
project, author, release = "dlsched", "The dlsched authors", dlsched.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
source_suffix = {".md": "markdown"}
include_patterns = [
    "*.md",
    "docs/**.md",
    "examples/**.md",
    "benchmarks/README.md",
    "simulate/README.md",
    "dlsched/**README.md",
]
exclude_patterns = ["out", "build", "dist", "**/.*"]
myst_heading_anchors = 6
suppress_warnings = ["misc.highlighting_failure", "ref.python", "myst.header"]
html_theme = "furo"
html_title = f"dlsched {release}"
html_copy_source = False
html_show_copyright = False
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
napoleon_use_rtype = False
add_module_names = False

SECTION = re.compile(r"^\*\*(.+?)\.?\*\*\.?")
PAGE = re.compile(r"\]\(((?:\.\./)?[\w./-]+\.md)\)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FOLDERS = {  # pages of these folders stand below their index
    "docs/policies/index": ["docs/policies/*.md"],
    "docs/decisions/index": ["docs/decisions/*.md"],
    "docs/architecture": ["dlsched/**/README.md", "simulate/README.md"],
    "CONTRIBUTING": ["benchmarks/README.md", "examples/**/README.md"],
}


def contents(index: Path) -> str:
    """The contents of the site: the pages that the sections of the index link, in order."""
    section, pages = "First steps", {"First steps": ["../README.md", "quickstart.md"]}
    for line in index.read_text(encoding="utf-8").splitlines():
        if found := SECTION.match(line.strip()):
            section = found[1]
        pages.setdefault(section, []).extend(PAGE.findall(line))
    seen: set[str] = set()
    parts = []
    for caption, named in pages.items():
        fresh = [name for name in dict.fromkeys(named) if name not in seen]
        seen.update(fresh)
        more = ["site/api.md"] if caption == "For contributors" else []
        parts.append(toctree([*fresh, *more], f":caption: {caption}\n"))
    return "".join(parts)


def toctree(pages: list[str], options: str = "") -> str:
    """A hidden directive with some pages."""
    listed = "\n".join(pages)
    return f"\n\n```{{toctree}}\n:hidden:\n{options}\n{listed}\n```\n" if pages else ""


def add_contents(app: Any, name: str, source: list[str]) -> None:
    """Append what stands below a page; links to folders lead to their README."""
    here = (ROOT / f"{name}.md").parent
    if name == root_doc:
        source[0] += contents(ROOT / "docs" / "index.md")
    below = [page for pattern in FOLDERS.get(name, ()) for page in sorted(ROOT.glob(pattern))]
    pages = [f"/{page.relative_to(ROOT)}" for page in below if page != ROOT / f"{name}.md"]
    source[0] += toctree(pages)

    def mended(found: re.Match[str]) -> str:
        target = found[1]
        if "://" in target or target.startswith("#") or not (here / target).is_dir():
            return found[0]
        return (
            f"]({target.rstrip('/')}/README.md)" if (here / target / "README.md").exists() else "]"
        )

    source[0] = LINK.sub(mended, source[0])


def setup(app: Any) -> None:
    """Register what is done to pages."""
    app.connect("source-read", add_contents)
