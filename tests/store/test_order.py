"""The order of flushes and renames, as the kernel saw it.

A killed process leaves the page cache behind, so only the order tells what a
power cut would leave: nothing is renamed before what it holds was flushed, and
nothing is acknowledged before the rename was.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from weightd.store import Store

LIFE = """
import sys
from pathlib import Path
from tests.store.support import put
from weightd.store import Store
with Store.open(Path(sys.argv[1])) as store:
    model = put(store, 'org/m', {'a/b/x': b'1', 'y': b'2'})
    print('published', flush=True)
    store.mark_superseded(model.id)
    print('retired', flush=True)
    store.restore(model)
    print('unretired', flush=True)
    store.doom([model.id])
    print('doomed', flush=True)
"""

EVENT = re.compile(
    r"(?P<fsync>fsync\(\d+<(?P<flushed>[^>]*)>\))"
    r"|(?P<rename>renameat\d?\(\d+<(?P<of>[^>]*)>, \"(?P<old>[^\"]*)\""
    r", \d+<(?P<to>[^>]*)>, \"(?P<new>[^\"]*)\")"
    r"|(?P<unlink>unlinkat\(\d+<(?P<in>[^>]*)>, \"(?P<gone>[^\"]*)\")"
    r"|(?P<said>write\(1<[^>]*>, \"(?P<word>[a-z]+)(?:\\n)?\")"
)


@pytest.fixture
def events(root: Path, tmp_path: Path) -> list[str]:
    """Every flush, rename and unlink below the root, ids and digests left out."""
    Store.open(root).close()
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-s", "300", "-o", str(trace)]
    command += ["-e", "trace=fsync,renameat,renameat2,unlinkat,write", sys.executable]
    cwd = Path(__file__).parents[2]
    ran = subprocess.run(
        [*command, "-c", LIFE, str(root)], capture_output=True, text=True, cwd=cwd, check=False
    )
    if "Operation not permitted" in ran.stderr:
        pytest.skip("cannot be had here, tracing is not allowed")
    assert ran.returncode == 0, ran.stderr
    return [event for line in trace.read_text().splitlines() if (event := read(line, root))]


def read(line: str, root: Path) -> str | None:
    match = EVENT.search(line)
    if match is None:
        return None
    if match["fsync"]:
        event = f"flush {match['flushed']}"
    elif match["rename"]:
        event = f"rename {match['of']}/{match['old']} {match['to']}/{match['new']}"
    elif match["unlink"]:
        event = f"unlink {match['in']}/{match['gone']}"
    else:
        return str(match["word"])
    event = event.replace(f"{root}/", "").replace("org+m.", "")
    return re.sub(r"\b[0-9a-f]{16,32}\b", "ID", event)


@pytest.mark.needs("strace")
def test_nothing_is_acknowledged_or_renamed_before_it_was_flushed(events: list[str]) -> None:
    assert events == [
        "flush incoming/ID/m/a/b/x",
        "flush incoming/ID/m/y",
        "flush incoming/ID/m/a/b",
        "flush incoming/ID/m/a",
        "flush incoming/ID/m",
        "flush incoming/ID/manifest.json",
        "flush incoming/ID",
        "rename incoming/ID models/ID",
        "flush models",
        "flush incoming",
        "published",
        "flush models/ID/superseded",
        "flush models/ID",
        "retired",
        "unlink models/ID/manifest.json.new",
        "flush models/ID/manifest.json.new",
        "rename models/ID/manifest.json.new models/ID/manifest.json",
        "flush models/ID",
        "unlink models/ID/superseded",
        "flush models/ID",
        "unretired",
        "rename models/ID doomed/ID",
        "flush doomed",
        "flush models",
        "doomed",
    ]
