"""Files of other programs: reading within limits, and errors for the rest."""

import os
import socket
from pathlib import Path

import pytest

from netfold.sim.files.foreign import UnreadableError, open_regular, read_bytes, read_text, text_of


def refused(path: str | Path, limit_bytes: int = 10) -> str:
    with pytest.raises(UnreadableError) as caught:
        read_bytes(path, limit_bytes)
    return str(caught.value)


def test_a_file_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")

    assert read_bytes(path, 10) == b"0123456789"
    assert refused(path, 9) == "it is too large: it has 10 bytes, up to 9 are read"


def test_a_file_that_hides_its_size() -> None:
    """What lies in /proc has 0 bytes by its own account."""
    assert refused("/proc/self/maps") == "it is too large: it goes on, up to 10 are read"


def test_what_is_no_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))

        assert refused(tmp_path / "socket") == "it is a socket, or a device that does not answer"
    assert refused(tmp_path) == "it is a directory"
    assert refused(tmp_path / "pipe") == "it is a pipe"
    assert refused("/dev/zero") == "it is a device"


def test_links(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    (tmp_path / "good").symlink_to("a")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "loop").symlink_to("loop")

    assert read_bytes(tmp_path / "good", 1) == b"x"
    assert refused(tmp_path / "dangling") == "it is a link to 'nothing', which is not there"
    assert refused(tmp_path / "loop") == "it is a link that leads back to itself"


def test_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")

    with pytest.raises(UnreadableError) as caught:
        open_regular(tmp_path / "b")
    assert (str(caught.value), caught.value.is_missing) == ("there is no such file", True)
    assert refused(tmp_path / "a" / "b") == "a part of its path is not a directory"
    assert refused(tmp_path / ("a" * 300)) == "its name is too long"
    assert refused("a\0b") == "its name holds a null character"


def test_text(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes("\N{BYTE ORDER MARK}Größe".encode())

    assert read_text(path, 100) == "Größe"
    with pytest.raises(UnreadableError) as caught:
        text_of("a\nGröße".encode("latin-1"))
    assert str(caught.value) == "it is not UTF-8 text (line 2)\n  save the file as UTF-8"
