"""SIGKILL at every step of an adoption, and of what a start gives back: no file is ever lost."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.store.lives import live
from tests.store.support import manifest_of, names_in, tree_of
from weightd.errors import DigestMismatch
from weightd.failpoints import from_environment
from weightd.model import FileEntry, Key
from weightd.store import Announced, Offered, Store, ownership

FILES: Final = {"a/x": b"1" * 5000, "a/z": b"", "y": b"old"}
KEY: Final = Key.parse("m")


def offered(home: Path, sha256: str | None = None) -> list[Offered]:
    return [
        Offered(Announced(path, len(body), sha256), str(home / path))
        for path, body in FILES.items()
    ]


def lay_out(home: Path) -> None:
    for path, body in FILES.items():
        (home / path).parent.mkdir(parents=True, exist_ok=True)
        (home / path).write_bytes(body)
        (home / path).chmod(0o640)


def adopt(store: Store, home: Path, sha256: str | None = None) -> tuple[FileEntry, ...]:
    with store.begin(KEY) as ingest:
        files = ingest.adopt(offered(home, sha256), os.geteuid())
        store.publish(ingest, manifest_of(KEY, files))
    return files


def adoption(arguments: Sequence[str]) -> None:
    """One that is refused at last and gives everything back, and one that goes through."""
    root, reach = Path(*arguments), from_environment(os.environ)
    with Store.open(root, reach=reach) as store:
        store.scan()
        home = root.parent / "home"
        with pytest.raises(DigestMismatch):
            adopt(store, home, "0" * 64)
        sys.stdout.write("refused\n")
        sys.stdout.flush()
        adopt(store, home)


def start(arguments: Sequence[str]) -> None:
    """A start on what was left."""
    with Store.open(Path(*arguments), reach=from_environment(os.environ)) as store:
        store.scan()


def nothing_is_lost(root: Path, *, published: bool) -> None:
    """It is all in the model, or where it was and as it was."""
    home = root.parent / "home"
    with Store.open(root) as store:
        report = store.scan()
        assert report.foreign == []
        assert names_in(store, "incoming") == []
        if published:
            (found,) = report.models
            assert isinstance(store.check(found.manifest), tuple)
            assert tree_of(store.path_of(found.manifest.id)) == FILES
            assert tree_of(home) == {}
        else:
            assert report.models == []
            assert tree_of(home) == FILES
            modes = {(home / path).stat().st_mode & 0o777 for path in FILES}
            links = {(home / path).stat().st_nlink for path in FILES}
            assert (modes, links) == ({0o640}, {1})


@pytest.mark.parametrize(
    ("failpoint", "published"),
    [
        *((f"adopt.noted:{count}", False) for count in (1, 2)),
        *((f"adopt.moved:{count}", False) for count in (1, 3, 4, 6)),
        *((f"adopt.given-back:{count}", False) for count in (1, 2, 3)),
        ("ingest.taken-over:2", False),
        ("ingest.sealed:2", False),
        ("publish.manifest-flushed:1", False),
        ("publish.renamed:1", True),
        ("publish.parent-flushed:1", True),
        ("publish.tidied:1", True),
    ],
)
def test_killed_on_the_way(root: Path, failpoint: str, published: bool) -> None:
    lay_out(root.parent / "home")
    died, _ = live(adoption, root, failpoint)
    assert died, f"{failpoint} was not reached"
    nothing_is_lost(root, published=published)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_killed_while_a_start_gives_back(root: Path, count: int) -> None:
    lay_out(root.parent / "home")
    assert live(adoption, root, "publish.manifest-flushed:1")[0]
    assert live(start, root, f"adopt.given-back:{count}")[0]
    nothing_is_lost(root, published=False)


def test_killed_between_the_two_names_of_a_file(root: Path) -> None:
    """It goes back by a second name, and then gives up the first."""
    home = root.parent / "home"
    lay_out(home)
    assert live(adoption, root, "adopt.moved:3")[0]
    (left,) = (root / "incoming").iterdir()
    os.link(left / "m" / "y", home / "y")
    nothing_is_lost(root, published=False)


def test_a_directory_that_is_gone_keeps_the_files_here(root: Path) -> None:
    home = root.parent / "home"
    lay_out(home)
    assert live(adoption, root, "publish.manifest-flushed:1")[0]
    (home / "a").rmdir()
    with Store.open(root) as store:
        (left,) = names_in(store, "incoming")
        assert store.scan().foreign == [f"incoming/{left}"]
        assert tree_of(root / "incoming" / left / "m") == {
            path: body for path, body in FILES.items() if path.startswith("a/")
        }
        assert tree_of(home) == {"y": b"old"}
    (home / "a").mkdir()
    nothing_is_lost(root, published=False)


def test_access_lists_come_back(root: Path) -> None:
    home = root.parent / "home"
    lay_out(home)
    descriptor = os.open(home / "y", os.O_RDONLY)
    try:
        ownership.let_in(descriptor, 65534)
        before = ownership.before(descriptor)
        assert before.lists
        with Store.open(root) as store, pytest.raises(DigestMismatch):
            adopt(store, home, "0" * 64)
        after = ownership.before(descriptor)
    finally:
        os.close(descriptor)
    assert (after.lists, after.status.st_mode) == (before.lists, before.status.st_mode)


@pytest.mark.needs("root")
def test_the_group_comes_back(root: Path) -> None:
    """Root's own files are in the daemon's group for a moment."""
    home = root.parent / "home"
    lay_out(home)
    for path in FILES:
        os.chown(home / path, -1, 65534)
    with Store.open(root, group=65533) as store, pytest.raises(DigestMismatch):
        adopt(store, home, "0" * 64)
    assert {(home / path).stat().st_gid for path in FILES} == {65534}
