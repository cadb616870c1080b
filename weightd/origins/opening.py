"""From a reference to the origin that serves it."""

from __future__ import annotations

from weightd.origins.allowing import check_allowed, is_shown
from weightd.origins.contract import Origin, Patience, Trust
from weightd.origins.reference import Reference


def open_origin(
    reference: Reference, *, trust: Trust, patience: Patience, credential: str | None = None
) -> Origin:
    """The origin of one reference; nothing is asked of it yet.

    ``credential`` is a name from the settings; one that is not for this
    reference is not used.  Raises Forbidden, InvalidRequest for a credential
    that there is not, and OriginFailed for one that cannot be read.  A kind of
    origin is imported when it is first opened.
    """
    check_allowed(reference, trust)
    if credential is not None:
        known = trust.credential(credential)
        if known is not None and not is_shown(known, reference):
            credential = None
    if reference.kind == "file":
        from weightd.origins.shared import FileOrigin

        return FileOrigin(reference, trust)
    if reference.kind == "hf":
        from weightd.origins.hub import HubOrigin

        return HubOrigin(reference, trust, patience, credential)
    if reference.kind in ("http", "https"):
        from weightd.origins.web import WebOrigin

        return WebOrigin(reference, trust, patience, credential)
    from weightd.origins.objects import ObjectsOrigin

    return ObjectsOrigin(reference, trust, patience, credential)
