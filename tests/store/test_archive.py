"""Tar streams: every dialect that packers write, and every hostile kind refused whole."""

from __future__ import annotations

import itertools
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.store.support import Bytes, Claims, TarFormat, tar
from weightd.errors import InvalidArchive
from weightd.store import archive as archive_module
from weightd.store.archive import EXTENSION_BYTES_MAX, TarReader
from weightd.store.source import Source, fill

END = bytes(1024)
DIALECTS: list[TarFormat] = ["ustar", "gnu", "pax"]


def unpack(source: Source) -> dict[str, bytes]:
    reader = TarReader(source)
    files = {}
    for member in reader.members():
        data = bytearray(member.size)
        assert fill(reader, memoryview(data)) == member.size
        assert reader.readinto(memoryview(bytearray(1))) == 0
        files[member.path] = bytes(data)
    return files


def refusal(data: bytes) -> InvalidArchive:
    with pytest.raises(InvalidArchive) as refused:
        unpack(Bytes(data, 700))
    assert "Nothing of it was kept" in refused.value.detail
    return refused.value


def member(name: str, content: bytes = b"", **fields: object) -> bytes:
    """One member as the GNU dialect writes it, any field replaced."""
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape") + padded(content)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % 512)


def resum(header: bytes) -> bytes:
    """A header with its checksum made right again."""
    blanked = header[:148] + b" " * 8 + header[156:512]
    return header[:148] + b"%06o\0 " % sum(blanked) + header[156:]


def patched(header: bytes, offset: int, data: bytes) -> bytes:
    return resum(header[:offset] + data + header[offset + len(data) :])


def raw(name: bytes, kind: bytes = b"0", size: int = 0) -> bytes:
    """A bare header without magic."""
    fields = name.ljust(100, b"\0") + b"0000644\0" * 3 + b"%011o\0" % size + b"0" * 11 + b"\0"
    return resum((fields + b" " * 8 + kind).ljust(512, b"\0"))


def pax(records: bytes, kind: bytes = b"x") -> bytes:
    return patched(raw(b"pax", kind, len(records)), 257, b"ustar\x0000") + padded(records)


def record(key: str, value: str) -> bytes:
    body = f" {key}={value}\n".encode()
    length = len(body) + 1
    while len(f"{length}") + len(body) != length:
        length += 1
    return f"{length}".encode() + body


LONG = (
    "/".join(["directory-with-a-name-of-some-length"] * 6) + "/weights-00001-of-00002.safetensors"
)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_dialect_is_read(dialect: TarFormat) -> None:
    files = {"config.json": b"{}", "a/b/w.bin": bytes(range(256)) * 300, "empty": b"", LONG: b"x"}
    if dialect == "ustar":
        del files[LONG]
        files["d" * 90 + "/" + "f" * 90] = b"prefixed"
    assert unpack(Bytes(tar(files, dialect))) == files
    assert unpack(Bytes(tar(files, dialect), piece=1)) == files


@pytest.mark.needs("tar")
@pytest.mark.parametrize("dialect", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_the_tar_command_is_read(tmp_path: Path, dialect: str) -> None:
    files = {"config.json": b"{}", "sub/dir/w.bin": b"w" * 70_000, "n" * 90: b"long"}
    if dialect not in ("v7", "ustar"):
        files["m" * 200] = b"longer"
    for name, content in files.items():
        path = tmp_path / "model" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    command = ["tar", "-C", str(tmp_path / "model"), f"--format={dialect}", "-cf", "-", "."]
    packed = subprocess.run(command, capture_output=True, check=True).stdout
    assert unpack(Bytes(packed)) == files


def test_names_are_normalised() -> None:
    data = member("./", type=tarfile.DIRTYPE) + member("././a/", type=tarfile.DIRTYPE)
    data += member("./a/w", b"1") + member("./a", type=tarfile.DIRTYPE) + END
    assert unpack(Bytes(data)) == {"a/w": b"1"}


def test_an_old_archive_without_magic_is_read() -> None:
    data = raw(b"d/", b"\0") + raw(b"d/w", b"\0", 1) + padded(b"1") + END
    assert unpack(Bytes(data)) == {"d/w": b"1"}


def test_a_large_size_is_read() -> None:
    """Base 256, as GNU writes what eleven octal digits cannot hold."""
    header = patched(member("w"), 124, b"\x80" + (1 << 40).to_bytes(11, "big"))
    reader = TarReader(Bytes(header))
    assert next(reader.members()).size == 1 << 40


def test_a_pax_size_counts_and_comments_do_not() -> None:
    data = pax(record("comment", "from git archive"), b"g")
    data += pax(record("size", "3") + record("mtime", "1.5") + record("SCHILY.xattr.x", "=\n"))
    data += raw(b"w", b"0", 0) + padded(b"123") + END
    assert unpack(Bytes(data)) == {"w": b"123"}


def test_what_follows_the_end_is_drained() -> None:
    source = Bytes(tar({"w": b"1"}) + b"garbage" * 1000)
    assert unpack(source) == {"w": b"1"}
    assert source.readinto(memoryview(bytearray(1))) == 0


def test_one_zero_block_at_the_very_end_will_do() -> None:
    assert unpack(Bytes(member("w", b"1") + bytes(512))) == {"w": b"1"}


HOSTILE: dict[str, tuple[bytes, str]] = {
    "absolute": (member("/etc/passwd", b"1"), "absolute"),
    "parent": (member("../w", b"1"), "segment '..'"),
    "parent inside": (member("a/../../w", b"1"), "segment '..'"),
    "parent after dots": (member("././../w", b"1"), "segment '..'"),
    "empty segment": (member("a//w", b"1"), "segment ''"),
    "dot inside": (member("a/./w", b"1"), "segment '.'"),
    "empty name": (member("", b"1"), "segment ''"),
    "only dots": (member("./", b"1"), "segment ''"),
    "file named like a directory": (member("w/", b"1"), "segment ''"),
    "control character": (member("a\nb", b"1"), "control character"),
    "not utf-8": (member("a\udcff", b"1"), "not valid UTF-8"),
    "too long": (pax(record("path", "n" * 300)) + member("w"), "longer than 255"),
    "too deep": (pax(record("path", "d/" * 40 + "w")) + member("w"), "deeper"),
    "absolute in pax": (pax(record("path", "/w")) + member("w"), "absolute"),
    "parent in a long name": (member("../" + "n" * 200, b"1"), "segment '..'"),
    "NUL in pax": (pax(record("path", "a\0b")) + member("w"), "control character"),
    "symlink": (member("w", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "symbolic link"),
    "long symlink": (member("w", type=tarfile.SYMTYPE, linkname="x" * 200), "it is a link"),
    "hard link": (member("a", b"1") + member("w", type=tarfile.LNKTYPE, linkname="a"), "hard link"),
    "character device": (member("w", type=tarfile.CHRTYPE), "character device"),
    "block device": (member("w", type=tarfile.BLKTYPE), "block device"),
    "fifo": (member("w", type=tarfile.FIFOTYPE), "fifo"),
    "sparse": (member("w", type=tarfile.GNUTYPE_SPARSE), "sparse"),
    "sparse in pax": (pax(record("GNU.sparse.major", "1")) + member("w"), "sparse"),
    "unknown type": (member("w", type=b"Z"), "unknown type"),
    "volume": (member("w", type=b"M"), "volume"),
    "twice": (member("w", b"1") + member("w", b"2"), "stands twice"),
    "twice, spelled apart": (member("w", b"1") + member("./w", b"2"), "stands twice"),
    "file below a file": (member("a", b"1") + member("a/w", b"2"), "is a file"),
    "file over a directory": (member("a/w", b"1") + member("a", b"2"), "file and a directory"),
    "directory over a file": (member("a", b"1") + member("a/", type=b"5"), "file and a directory"),
    "absolute directory": (member("/", type=b"5"), "absolute"),
    "directory with a length": (patched(member("a/", type=b"5"), 124, b"00000000001"), "length"),
    "parent directory": (member("../", type=b"5"), "segment '..'"),
    "two long names": (pax(record("path", "a")) + member("n" * 200), "two extended headers"),
    "long name without end": (
        patched(raw(b"x", b"L"), 124, b"00000000003") + padded(b"abc"),
        "end",
    ),
    "long name ending twice": (member("n" * 200).replace(b"nnn\0", b"n\0n\0", 1), "long name"),
    "global path": (pax(record("path", "a"), b"g") + member("w"), "global header"),
    "global size": (pax(record("size", "1"), b"g") + member("w"), "global header"),
    "global in between": (pax(record("path", "a")) + pax(b"", b"g") + member("w"), "global"),
    "huge pax": (patched(pax(b""), 124, b"77777777777"), "an extended header has"),
    "huge long name": (patched(raw(b"x", b"L"), 124, b"77777777777"), "an extended header has"),
    "pax without length": (pax(b"path=a\n") + member("w"), "malformed"),
    "pax too long": (pax(b"99 path=a\n") + member("w"), "malformed"),
    "pax without equals": (pax(b"8 path\n\n") + member("w"), "malformed"),
    "pax length of zero": (pax(b"0 path=a\n") + member("w"), "malformed"),
    "pax without newline": (pax(b"9 path=ab") + member("w"), "malformed"),
    "pax with an empty path": (pax(record("path", "")) + member("w"), "empty path"),
    "pax with a bad size": (pax(record("size", "-1")) + member("w"), "not a number of bytes"),
    "pax with a huge size": (pax(record("size", "9" * 19)) + member("w"), "not a number"),
    "negative size": (patched(member("w"), 124, b"\xff" * 12), "not a number"),
    "absurd size": (patched(member("w"), 124, b"\x80" + b"\xff" * 11), "absurd"),
    "size of letters": (patched(member("w"), 124, b"twelve"), "not a number"),
    "incremental": (patched(member("w"), 345, b"00000000001"), "incremental"),
    "other magic": (patched(member("w"), 257, b"USTAR"), "unknown dialect"),
    "wrong checksum": (b"v" + member("w")[1:], "checksum"),
    "no archive": (b"GGUF" + bytes(range(256)) * 8, "checksum"),
    "a zeroed header": (member("a", b"1") + bytes(512) + member("w", b"1"), "single zeroed block"),
    "empty": (b"", "no file"),
    "directories only": (member("a/", type=b"5"), "no file"),
    "dangling extension": (member("w") + pax(record("path", "a")), "after a member's extended"),
}


@pytest.mark.parametrize(("data", "reason"), HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_archives_are_refused(data: bytes, reason: str) -> None:
    assert reason in refusal(data + END).reason


TRUNCATED = tar({"a/" + "n" * 200: b"1" * 700, "w": b"2"}, "gnu")


@pytest.mark.parametrize("length", [0, 1, 511, 512, 600, 1024, 1100, 1536, 1600, 2236, 2300])
def test_a_truncated_archive_is_refused(length: int) -> None:
    assert "truncated" in refusal(TRUNCATED[:length]).reason


def test_without_an_end_marker_it_is_truncated() -> None:
    assert "no end marker" in refusal(member("w", b"1")).reason


def test_the_offending_member_is_named() -> None:
    assert refusal(member("fine", b"1") + member("bad\x01", b"2") + END).member == "bad\x01"


def test_too_many_members_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weightd.store.names.FILES_MAX", 10)
    files = b"".join(member(f"f{number}") for number in range(11))
    assert "more than 10 files" in refusal(files + END).reason


def test_too_many_bytes_of_names_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weightd.store.names.NAME_BYTES_MAX", 100)
    files = b"".join(member(f"{number}" + "n" * 50) for number in range(2))
    assert "the names have more than 100 bytes" in refusal(files + END).reason


def test_an_endless_tail_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "TRAILING_BYTES_MAX", 1 << 16)
    assert "follow its end marker" in refusal(tar({"w": b"1"}) + bytes(1 << 18)).reason


def test_memory_is_bounded_by_the_extension_limit() -> None:
    """The longest extension that is read is one, not what the archive claims."""
    asked = []

    class Watched:
        def __init__(self, inner: Source) -> None:
            self._inner = inner

        def readinto(self, buffer: memoryview) -> int:
            asked.append(len(buffer))
            return self._inner.readinto(buffer)

    data = pax(record("comment", "x" * (EXTENSION_BYTES_MAX - 100)), b"g") + member("w", b"1") + END
    assert unpack(Watched(Bytes(data))) == {"w": b"1"}
    assert max(asked) <= EXTENSION_BYTES_MAX


def test_a_refused_member_is_never_handed_on() -> None:
    claims = Claims()
    reader = TarReader(Bytes(member("a", b"1") + member("../b", b"2" * 9999) + END))
    members = reader.members()
    claims(next(members).size)
    fill(reader, memoryview(bytearray(1)))
    with pytest.raises(InvalidArchive):
        next(members)
    assert claims.total == 1


def test_the_records_of_a_header_are_read_in_time_that_grows_as_they_do() -> None:
    """Quadratic in a megabyte of small records, it took seconds of a thread nobody can stop."""
    records = archive_module._pax_records(b"6 a=b\n" * 174_000)
    assert records == {b"a": b"b"}


def test_an_archive_of_headers_alone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_module, "HEADERS_MAX", 10)
    directory = tarfile.TarInfo("d")
    directory.type = tarfile.DIRTYPE
    endless = itertools.cycle(directory.tobuf())

    class Endless:
        def readinto(self, buffer: memoryview) -> int:
            buffer[:] = bytes(itertools.islice(endless, len(buffer)))
            return len(buffer)

    with pytest.raises(InvalidArchive, match="more than 10 headers"):
        list(TarReader(Endless()).members())


def test_a_compressed_archive_is_told_for_what_it_is() -> None:
    class Compressed:
        def readinto(self, buffer: memoryview) -> int:
            buffer[:2] = b"\x1f\x8b"
            return len(buffer)

    with pytest.raises(InvalidArchive, match="gzip"):
        list(TarReader(Compressed()).members())
