"""Where a model is for this process, whose mount of the root may be another than the daemon's."""

from __future__ import annotations

import os

from weightd.client.effects import Do, Flow
from weightd.places import ROOT_VARIABLE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from weightd.client.faults import NotTheSameDirectory
    from weightd.client.records import Model


class Mount:
    """The root as it is called here; without one, things are where the daemon says."""

    def __init__(self, root: str | os.PathLike[str] | None) -> None:
        given = os.environ.get(ROOT_VARIABLE) if root is None else os.fspath(root)
        self.root = os.path.abspath(given) if given else None

    def placed(self, model: Model) -> Flow[Model]:
        """The model with its path here.  Raises NotTheSameDirectory.

        Where there is no other mount it is taken at its word: nothing is looked at.
        """
        if self.root is None:
            return model
        here = self.relocated(model)
        yield Do(lambda: must_be_same(model, here.path))
        return here

    def relocated(self, model: Model) -> Model:
        """The model with its paths below this root."""
        if self.root is None:
            return model
        path = os.path.join(self.root, model.relative_path)
        file = model.file and path + model.file.removeprefix(model.path)
        return model._replace(path=path, file=file)


def must_be_same(model: Model, path: str) -> None:
    """Raise NotTheSameDirectory unless ``path`` here is what the daemon calls ``model.path``."""
    try:
        here = os.stat(path)
    except OSError as error:
        raise mismatch(model, path, f"cannot be looked at ({error.strerror})") from None
    there = _seen(model.path)
    if there is not None:
        if there != (here.st_dev, here.st_ino):
            raise mismatch(model, path, "is another directory than that")
        return
    digest = _digest_beside(path)
    if digest is None:
        raise mismatch(model, path, "has no manifest.json of weightd's beside it") from None
    if digest != model.generation:
        raise mismatch(model, path, f"is another generation, {digest[:16]}")


def _seen(path: str) -> tuple[int, int] | None:
    """Which directory the daemon's own path names here, None where it names none."""
    try:
        there = os.stat(path)
    except OSError:
        return None
    return there.st_dev, there.st_ino


def _digest_beside(path: str) -> str | None:
    """The digest that the manifest of the directory tells, None where there is none to read."""
    import json

    # A model that is called like it has it beside itself with a dot.
    name = ".manifest.json" if os.path.basename(path) == "manifest.json" else "manifest.json"
    try:
        with open(os.path.join(os.path.dirname(path), name), "rb") as file:
            digest = json.load(file)["digest"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return digest if isinstance(digest, str) else None


def mismatch(model: Model, path: str, reason: str) -> NotTheSameDirectory:
    """The error of a ``path`` that is not the model's, which ``reason`` says as half a sentence."""
    from weightd.client.faults import NotTheSameDirectory

    root = model.path.removesuffix(model.relative_path).rstrip("/") or "/"
    return NotTheSameDirectory(path, model.path, root, reason)
