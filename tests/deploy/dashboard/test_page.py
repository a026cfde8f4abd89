"""The files of the page: what they are sent with, and that nothing in them is from elsewhere."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from tests.deploy.server.service import Service

PAGE = files("deploy.dashboard").joinpath("page")
NAMES = sorted(file.name for file in PAGE.iterdir())


def path_of(name: str) -> str:
    return "/" if name == "index.html" else f"/dashboard/{name}"


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_to_everyone_with_a_strict_policy(service: Service, name: str) -> None:
    response = service.as_(None).get(path_of(name))
    assert response.status_code == 200
    assert response.content == PAGE.joinpath(name).read_bytes()
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert response.headers.get_list("Content-Security-Policy") == [policy]
    assert response.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    kinds = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
    assert response.headers["Content-Type"].startswith(kinds[name.rpartition(".")[2]])


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_asked_of_elsewhere_or_parses_html_or_mixes_scripts_into_it(name: str) -> None:
    text = PAGE.joinpath(name).read_text()
    assert set(re.findall(r"https?://[^\s\"')]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    if name == "index.html":
        assert re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL) == [""]
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=", text)


def test_only_the_files_of_the_page_are_served(service: Service) -> None:
    for path in ("/dashboard/", "/dashboard/index.html", "/dashboard/../routes.py", "/dashboard/routes.py"):
        assert service.as_(None).get(path).status_code == 404
