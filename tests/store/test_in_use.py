"""Nobody who could reach a byte loses it, and nobody is served a path that is gone."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.store.support import (
    MAPS,
    Zeros,
    names_in,
    process,
    process_elsewhere,
    put,
    unlink_all,
)
from tests.system.tiers import MOMENTS
from weightd.store import SeizeRefused, Store

# Told a path and a delay, it opens the file just then and reads all of it: "gone", or its length
# and whether the bytes are those expected.
OPENER = """
import sys, time
print('ready', flush=True)
for line in sys.stdin:
    path, delay = line.split()
    until = time.perf_counter() + float(delay)
    while time.perf_counter() < until:
        pass
    try:
        file = open(path, 'rb')
    except FileNotFoundError:
        print('gone', flush=True)
        continue
    data = b''
    while piece := file.read(65536):
        data += piece
    file.close()
    print('whole' if data == b'w' * 200000 else f'torn at {len(data)}', flush=True)
"""


@pytest.mark.timeout(600)
def test_a_file_opened_at_the_very_moment_of_eviction_is_whole_or_not_there(store: Store) -> None:
    """Reader and eviction begin at random moments of the same few milliseconds."""
    outcomes: Counter[tuple[str, str]] = Counter()
    chance, spread = random.Random(1), 0.003
    with process(OPENER) as opener:
        assert opener.stdin is not None
        assert opener.stdout is not None
        for _ in range(MOMENTS):
            model = put(store, "m", {"x": b"w" * 200_000})
            path = store.path_of(model.id) / "x"
            opener.stdin.write(f"{path} {chance.random() * spread}\n")
            opener.stdin.flush()
            time.sleep(chance.random() * spread)  # the moments are the point
            doomed = None
            try:
                (doomed,) = store.doom([model.id])
            except SeizeRefused:
                evicted = "stays"
            else:
                evicted = "goes"
                # Not while the reader has it: what it found stays until it is done.
                store.unlink(doomed, lambda _: None)
            answer = opener.stdout.readline().strip()
            outcomes[evicted, answer] += 1
            if doomed is None:
                assert answer == "whole", "it kept the model and did not find it"
                unlink_all(store, [model.id])
            else:
                assert answer in ("whole", "gone")
                while store.unlink(doomed, lambda _: None):
                    pass
    assert names_in(store, "models") == names_in(store, "doomed") == []
    # Which of the three comes how often is the machine's; a torn one never does.
    assert sum(outcomes.values()) == MOMENTS
    for outcome, times in sorted(outcomes.items()):
        print(times, *outcome)  # noqa: T201 - figures, for whoever asks with -rP


@pytest.mark.needs("root", "unshare", "mount")
def test_one_in_another_mount_namespace_keeps_what_it_maps(store: Store, tmp_path: Path) -> None:
    """As in a container that has the root mounted, read-only, from elsewhere."""
    model = put(store, "m", {"x": Zeros(1 << 20)})
    with process_elsewhere(MAPS, store.root, tmp_path / "mount", store.path_of(model.id) / "x"):
        assert store.look([model.id]).uses[model.id].kind == "use"
        with pytest.raises(SeizeRefused, match="x open or mapped"):
            store.doom([model.id])
        assert store.path_of(model.id).exists()
    assert unlink_all(store, [model.id]) == 1 << 20
