"""Rules for the repository itself: nothing private, nothing huge, nothing undocumented."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAX_BYTES = 8_000_000
PUBLIC_INDEXES = {"pypi.org", "files.pythonhosted.org", "download.pytorch.org"}

# Pieces are joined here so that this file does not match itself.
WORKPLACE = re.compile(
    "|".join(
        (
            r"(?<![\w.])/" + r"work/(main|shared|\.)",  # absolute paths of the place this was written in
            r"(?<![\w.])/" + r"farm/",
            r"\." + r"library\b",
            r"bash_" + r"jobs",
            r"\.\./" + r"shared\b",
        )
    )
)
# Without brackets and braces, which are addresses and templates, not hosts of indexes.
INDEX_URL = re.compile(r"https?://[^\s\"'`<>)\[\]{}]+")


# Comments, then a string.
DOCSTRING = re.compile(r"(\s*#[^\n]*\n)*\s*r?\"\"\"\s*[^\s\"]")


@cache
def tracked_files() -> list[Path]:
    """Files under version control that exist in the working tree."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: what is tracked cannot be known")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True
    ).stdout
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


@cache
def texts() -> dict[str, str]:
    """What the files hold that are not binary, by their names."""
    read = {path.relative_to(ROOT).as_posix(): path.read_bytes() for path in tracked_files()}
    return {name: data.decode("utf-8", errors="replace") for name, data in read.items() if b"\0" not in data}


def private_words(text: str) -> list[str]:
    """Words that name the workplace or a package index that others cannot reach."""
    found = [match.group(0) for match in WORKPLACE.finditer(text)]
    for match in INDEX_URL.finditer(text):
        parts = urlsplit(match.group(0))
        is_index = parts.path.rstrip("/").endswith("/simple") or "/whl" in parts.path
        if is_index and parts.hostname not in PUBLIC_INDEXES:
            found.append(match.group(0))
    return found


def test_no_file_names_the_workplace() -> None:
    found = [f"{name}: {word}" for name, text in texts().items() for word in private_words(text)]
    assert not found, "\n".join(found)


def test_no_file_holds_a_merge_conflict() -> None:
    conflict = re.compile(r"^(<{7} |>{7} )", re.MULTILINE)
    assert not [name for name, text in texts().items() if conflict.search(text)]


def test_private_words_are_found_and_public_ones_are_not() -> None:
    assert private_words("see /" + "work/main/x") == ["/" + "work/main"]
    assert private_words("see .." + "/shared/DESIGN.md") == [".." + "/shared"]
    assert private_words("pip -i http" + "://10.0.0.1/root/pypi/simple/") == [
        "http" + "://10.0.0.1/root/pypi/simple/"
    ]
    assert private_words("pip -i https://pypi.org/simple x; https://download.pytorch.org/whl/cpu") == []
    assert private_words("docs/work/main.md, network/main, ~/work") == []


def test_no_tracked_file_is_huge() -> None:
    found = [
        f"{p.relative_to(ROOT)}: {p.stat().st_size}" for p in tracked_files() if p.stat().st_size > MAX_BYTES
    ]
    assert not found, "\n".join(found)


def test_every_python_file_says_what_it_is() -> None:
    sources = {name: text for name, text in texts().items() if name.endswith(".py") and text.strip()}
    assert [name for name, source in sources.items() if not DOCSTRING.match(source)] == []


def test_the_changelog_has_an_unreleased_section() -> None:
    assert re.search(
        r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_licence_is_the_one_the_package_declares() -> None:
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert 'license = "Apache-2.0"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
