"""Files under one root, and forty ways out of it that lead nowhere."""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lango.errors import ToolError
from lango.tools.builtin.files import Files, FilesOptions, files_tools
from lango.tools.builtin.rooted import Rooted

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with a few files; beside it a folder with a secret, and links of all kinds to it."""
    outside, root = tmp_path / "outside", tmp_path / "root"
    (outside / "deep").mkdir(parents=True)
    (outside / "secret.txt").write_text(SECRET)
    (outside / "deep" / "secret.txt").write_text(SECRET)
    (root / "notes").mkdir(parents=True)
    (root / "a.txt").write_text("hello")
    (root / "notes" / "b.md").write_text("# needle")
    links = root / "links"
    links.mkdir()
    (links / "file").symlink_to(outside / "secret.txt")
    (links / "relative").symlink_to("../../outside/secret.txt")
    (links / "folder").symlink_to(outside)
    (links / "parent").symlink_to("..")
    (links / "up").symlink_to("../..")
    (links / "loop").symlink_to("loop")
    (links / "chain").symlink_to("folder")
    (links / "inside").symlink_to("../a.txt")
    (links / "dangling").symlink_to(outside / "new.txt")
    (links / "proc").symlink_to("/proc/self")
    os.mkfifo(root / "pipe")
    return root


def files(root: Path, **options: Any) -> Files:
    return Files(FilesOptions(root=root, write=True, **options))


ESCAPES = [
    # up
    *("..", "../", "../outside/secret.txt", "notes/../../outside/secret.txt", "./../outside"),
    *("notes/..", "../root/../outside/secret.txt", ".//..//outside/secret.txt", "notes/../a.txt"),
    # from the top
    *("/etc/passwd", "//etc/passwd", "/", "/proc/self/environ", "/dev/zero"),
    # links
    *("links/file", "links/relative", "links/folder/secret.txt", "links/folder/deep/secret.txt"),
    *("links/parent/a.txt", "links/up/outside/secret.txt", "links/loop", "links/chain/secret.txt"),
    *("links/dangling", "links/proc/status", "links/folder", "links/inside"),
    # what is no path
    *("a.txt\x00.png", "\x00", "links\x00/../../outside/secret.txt", "a\n.txt", "\ud800"),
    *("x" * 300, "x/" * 100 + "y", "a" * 5000, "a.txt/", "a.txt/../a.txt", "notes/b.md/x"),
    # what other systems would take for a way out
    *("..\\outside\\secret.txt", "C:\\secret.txt", "~/secret.txt", "~root", "file:///etc/passwd"),
    *("%2e%2e/outside/secret.txt", "..%2foutside", "\u2025/outside/secret.txt", "....//outside"),
]


@pytest.fixture
def before(root: Path) -> dict[str, bytes]:
    return outside_of(root)


def outside_of(root: Path) -> dict[str, bytes]:
    outside = root.parent / "outside"
    return {str(path): path.read_bytes() for path in outside.rglob("*") if path.is_file()}


def test_there_are_forty_ways_and_more() -> None:
    assert len(set(ESCAPES)) >= 40


@pytest.mark.parametrize("path", ESCAPES, ids=ascii)
def test_nothing_outside_is_read(root: Path, path: str) -> None:
    tools = files(root)
    if path == "a.txt/":  # names the file all the same
        assert tools.read_file(path)["text"] == "hello"
        return
    with pytest.raises(ToolError) as caught:
        tools.read_file(path)
    assert str(root.parent) not in str(caught.value)


@pytest.mark.parametrize("path", ESCAPES, ids=ascii)
def test_nothing_outside_is_written(root: Path, path: str, before: dict[str, bytes]) -> None:
    try:
        files(root).write_file(path, "mine")
    except ToolError:
        assert outside_of(root) == before
        return
    assert outside_of(root) == before
    # What is no way out here, and was written, is a file of that very name below the root.
    assert (root / path).read_text() == "mine"
    assert (root / path).resolve().is_relative_to(root)
    assert ".." not in path.split("/")


@pytest.mark.parametrize("path", ESCAPES, ids=ascii)
def test_nothing_outside_is_listed_or_found(root: Path, path: str) -> None:
    tools = files(root)
    with pytest.raises(ToolError):
        tools.list_files(path)
    with pytest.raises(ToolError):
        tools.find_files("*", path)


def test_a_search_does_not_follow_links(root: Path) -> None:
    tools = files(root)
    assert tools.find_files("*secret*")["files"] == []
    assert tools.find_files("*", "", SECRET)["files"] == []
    assert "links/file" in tools.find_files("*")["files"]  # the link itself may be seen


@contextmanager
def over_and_over(work: Callable[[], None]) -> Generator[None]:
    """Run `work` again and again in another thread."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()

    other = threading.Thread(target=run)
    other.start()
    try:
        yield
    finally:
        stop.set()
        other.join()


def test_a_link_swapped_in_for_a_folder_is_not_followed(root: Path) -> None:
    """A folder that is now a folder, now a link to the outside, thousands of times."""
    folder, away, link = root / "swap", root / "swap.away", root / "swap.link"
    folder.mkdir()
    (folder / "secret.txt").write_text("inside")
    link.symlink_to(root.parent / "outside")

    def swap() -> None:
        folder.rename(away)
        link.rename(folder)
        folder.rename(link)
        away.rename(folder)

    tools, seen = files(root), set[str]()
    with over_and_over(swap):
        for _ in range(3_000):
            try:
                seen.add(tools.read_file("swap/secret.txt")["text"])
                seen.update(tools.find_files("*", "swap", SECRET)["files"])
            except ToolError as error:
                seen.add(type(error).__name__)
    assert "inside" in seen
    assert seen <= {"inside", "ToolError"}


def test_a_link_swapped_in_for_a_file_is_not_written_through(root: Path) -> None:
    secret = root.parent / "outside" / "secret.txt"

    def swap() -> None:
        (root / "next").symlink_to(secret)
        (root / "next").replace(root / "swap.txt")
        (root / "next").write_text("a file again")
        (root / "next").replace(root / "swap.txt")

    tools, written = files(root), 0
    with over_and_over(swap):
        for _ in range(2_000):
            try:
                tools.write_file("swap.txt", "mine")
                written += 1
            except ToolError:
                continue
    assert written
    assert secret.read_text() == SECRET


def test_a_link_in_the_place_of_a_file_is_not_written_through(root: Path) -> None:
    with pytest.raises(ToolError, match="no regular file"):
        files(root).write_file("links/file", "mine")
    assert (root.parent / "outside" / "secret.txt").read_text() == SECRET


def test_the_root_may_be_a_link_itself(root: Path, tmp_path: Path) -> None:
    (tmp_path / "alias").symlink_to(root)
    tools = files(tmp_path / "alias")
    assert tools.read_file("a.txt")["text"] == "hello"
    # It was resolved when the tool was made: pointing it elsewhere later changes nothing.
    (tmp_path / "alias").unlink()
    (tmp_path / "alias").symlink_to(root.parent / "outside")
    assert tools.read_file("a.txt")["text"] == "hello"


def test_a_pipe_does_not_hang(root: Path) -> None:
    with pytest.raises(ToolError, match="no regular file"):
        files(root).read_file("pipe")
    assert files(root).find_files("pipe", "", "x")["files"] == []


def test_reading_in_pieces(root: Path) -> None:
    text = "äöü€🙂" * 7
    (root / "long.txt").write_text(text)
    tools, read, offset = files(root, max_read=5), "", 0
    while True:
        piece = tools.read_file("long.txt", offset)
        read += piece["text"]
        assert piece["size"] == len(text.encode())
        if "next_offset" not in piece:
            break
        assert piece["next_offset"] > offset
        offset = piece["next_offset"]
    assert read == text


def test_what_is_no_text(root: Path) -> None:
    (root / "image").write_bytes(b"\x89PNG\x00")
    with pytest.raises(ToolError, match="is no text"):
        files(root).read_file("image")


def test_writing(root: Path) -> None:
    tools = files(root, max_write=5)
    assert tools.write_file("new/folder/c.txt", "12345") == {
        "path": "new/folder/c.txt",
        "size": 5,
        "replaced": False,
    }
    (root / "new" / "folder" / "c.txt").chmod(0o600)
    assert tools.write_file("new/folder/c.txt", "1")["replaced"]
    assert (root / "new/folder/c.txt").read_text() == "1"
    assert (root / "new/folder/c.txt").stat().st_mode & 0o777 == 0o600
    with pytest.raises(ToolError, match="has 6 bytes; 5 may be written"):
        tools.write_file("c.txt", "123456")
    assert [path.name for path in (root / "new/folder").iterdir()] == ["c.txt"]


def test_a_write_that_fails_leaves_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ToolError, match="No space left"):
        files(root).write_file("notes/new.txt", "x")
    assert [path.name for path in (root / "notes").iterdir()] == ["b.md"]


def test_listing_and_finding(root: Path) -> None:
    tools = files(root)
    assert tools.list_files()["files"] == ["a.txt", "links/", "notes/", "pipe"]
    assert "file@" in tools.list_files("links")["files"]
    assert tools.find_files("*.md")["files"] == ["notes/b.md"]
    assert tools.find_files("notes/*")["files"] == ["notes/b.md"]
    assert tools.find_files("*.md", "notes")["files"] == ["notes/b.md"]
    assert tools.find_files("*", "", "needle")["files"] == ["notes/b.md"]
    assert tools.find_files("*", "", "nothing")["files"] == []


def test_many_names_are_cut(root: Path) -> None:
    for number in range(10):
        (root / "notes" / f"{number}.txt").touch()
    tools = files(root, max_entries=4)
    for found in (tools.list_files("notes"), tools.find_files("*.txt")):
        assert len(found["files"]) == 4
        assert found["truncated"] is True


def test_writing_is_offered_only_where_it_is_allowed(root: Path) -> None:
    names = [tool.name for tool in files_tools(FilesOptions(root=root))]
    assert names == ["read_file", "list_files", "find_files"]


def test_no_descriptor_is_left_open(root: Path) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    tools = files(root)
    for path in [*ESCAPES, "a.txt", "pipe", "notes"]:
        for attempt in (tools.read_file, tools.list_files, tools.find_files):
            try:
                attempt(path)
            except ToolError:
                continue
    with Rooted(root).reading("a.txt"):
        assert count() == before + 1
    assert count() == before
