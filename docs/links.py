"""MkDocs hook: links of the pages work on the site as they do in the repository.

Pages link to source files beside `docs/`. On the site these links lead to the repository on the web if
`repo_url` is set (SPOTWEAVE_REPO_URL), and are plain text otherwise. CONTRIBUTING.md and CHANGELOG.md become
pages of the site.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
OUTSIDE = ("CONTRIBUTING.md", "CHANGELOG.md")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s:#]+)(#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that stand outside of `docs/`."""
    for name in OUTSIDE:
        files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point every relative link of a page to where its target is on the site."""
    source = Path(page.file.abs_src_path or "")
    here = (ROOT / "docs" / page.file.src_uri).parent

    def moved(link: re.Match[str]) -> str:
        text, path, anchor = link[1], link[2], link[3] or ""
        target = (source.parent / path).resolve().relative_to(ROOT)
        if target.parts[0] == "docs" and (ROOT / target).is_file():
            return f"[{text}]({os.path.relpath(ROOT / target, here)}{anchor})"
        if target.as_posix() in OUTSIDE:
            return f"[{text}]({os.path.relpath(ROOT / 'docs' / target, here)}{anchor})"
        return f"[{text}]({config.repo_url.rstrip('/')}/blob/main/{target})" if config.repo_url else text

    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(moved, part) for part in parts[::2]]
    return "".join(parts)
