"""A verification of what a disk has lost, and of a disk that is gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.filesystems.backing import Backing, place_of
from tests.filesystems.disks import MAKERS, MB, attached, make
from tests.filesystems.test_cut import NOTHING_LEFT
from tests.store.support import put
from weightd.errors import IoError
from weightd.model import Manifest
from weightd.store import Reading, Store, Verified

pytestmark = [pytest.mark.needs("root", "mount", "losetup", "fsfreeze"), pytest.mark.timeout(240)]

KINDS = [pytest.param(name, marks=pytest.mark.needs(MAKERS[name][0])) for name in ("ext4", "xfs")]


def models_in(store: Store) -> dict[str, tuple[Manifest, int]]:
    """Some models, and where each begins on the disk."""
    found = {}
    for key in ("a", "b", "c"):
        model = put(store, key, {"w": key.encode() * (6 * MB)})
        found[key] = model, place_of(store.path_of(model.id) / "w")
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_disk_has_lost_is_damage_though_it_be_in_memory(tmp_path: Path, kind: str) -> None:
    image, root = tmp_path / "image", tmp_path / "root"
    make(kind, image, *(("-O", "^has_journal") if kind == "ext4" else ()))
    backing = Backing(image, root)
    with attached(kind, image, root), Store.open(root) as store:
        models = models_in(store)
        model, place = max(models.values(), key=lambda one: one[1])
        assert (store.path_of(model.id) / "w").stat().st_size == 6 * MB
        backing.cut(place + 5 * MB)
        for other, _ in models.values():
            verified = store.verify(other, Reading())
            assert verified is not None
            if other is model:
                (flaw,) = verified.flaws
                assert (flaw.path, flaw.problem, flaw.actual) == ("w", "io-error", None)
                assert flaw.reason == (
                    f"w cannot be read at byte {5 * MB} or soon after: Input/output error"
                )
            else:
                assert verified == Verified(())
        backing.grow_back()
        assert store.verify(model, Reading()) == Verified(())


@pytest.mark.parametrize("kind", KINDS)
def test_a_disk_that_is_gone_has_lost_no_model(tmp_path: Path, kind: str) -> None:
    image, root = tmp_path / "image", tmp_path / "root"
    make(kind, image)
    backing = Backing(image, root)
    # Of ext4 the latter was seen once, under load.
    said = "(Input/output error|Cannot allocate memory)" if kind == "ext4" else "Input/output error"
    with attached(kind, image, root), Store.open(root) as store:
        models = models_in(store)
        backing.cut(NOTHING_LEFT)
        for model, _ in models.values():
            with pytest.raises(IoError, match=said):
                store.verify(model, Reading())
        backing.grow_back()
