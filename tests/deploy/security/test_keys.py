"""The deployment's key and private files."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.security.keys import DeploymentKey, SecurityError
from spotweave.files import write_private

KEY = DeploymentKey(bytes(range(32)))


def test_a_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    with pytest.raises(SecurityError, match="cannot read the key file"):
        DeploymentKey.load(path)
    made = DeploymentKey.load(path, create=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DeploymentKey.load(path).mark == DeploymentKey.load(path, create=True).mark == made.mark
    assert list(tmp_path.iterdir()) == [path]


def test_several_that_make_it_at_once_have_the_same(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: DeploymentKey.load(tmp_path / "key", create=True), range(8)))
    assert len({key.mark for key in keys}) == 1


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o601])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    DeploymentKey.load(path, create=True)
    path.chmod(mode)
    with pytest.raises(SecurityError, match=f"permissions {mode:04o}.*chmod 600"):
        DeploymentKey.load(path)


@pytest.mark.parametrize("content", [b"", b"00", b"zz" * 32, b"00" * 33, b"\xff\xfe"])
def test_what_is_no_key_is_refused_and_not_repeated(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    write_private(path, content)
    with pytest.raises(SecurityError, match="does not hold a key") as caught:
        DeploymentKey.load(path)
    assert "zz" not in str(caught.value)
    with pytest.raises(SecurityError, match="is not a file"):
        DeploymentKey.load(tmp_path)


@given(st.text(), st.text(min_size=1))
def test_a_sealed_text_opens_in_its_own_context_only(secret: str, context: str) -> None:
    sealed = KEY.seal(secret, context)
    assert KEY.unseal(sealed, context) == secret
    with pytest.raises(SecurityError, match="cannot be decrypted"):
        KEY.unseal(sealed, context + "x")
    with pytest.raises(SecurityError, match="cannot be decrypted"):
        DeploymentKey(bytes(32)).unseal(sealed, context)
    assert KEY.seal(secret, context) != sealed, "never the same nonce"


@given(st.integers(0, 37))
def test_any_changed_byte_is_noticed(position: int) -> None:
    sealed = bytearray(KEY.seal("0123456789", "i1"))
    assert len(sealed) == 38
    sealed[position] ^= 1
    with pytest.raises(SecurityError):
        KEY.unseal(bytes(sealed), "i1")


def test_a_file_that_cannot_be_written_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"cannot write .*nowhere") as caught:
        DeploymentKey.load(tmp_path / "nowhere" / "key", create=True)
    assert "\n" not in str(caught.value)


def test_of_two_who_make_a_key_at_once_both_use_the_first_ones(tmp_path: Path) -> None:
    path = tmp_path / "key"

    class Late(type(path)):  # type: ignore[misc]
        """The other one's key is not there yet when it is looked for."""

        def exists(self, **_: object) -> bool:
            return False

    first = DeploymentKey.load(path, create=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert DeploymentKey.load(Late(path), create=True).mark == first.mark
