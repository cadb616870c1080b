"""Clients of object stores, from what the environment and a credential's file say.

Each client reads its own variables (``AWS_…``, ``GOOGLE_…``, ``AZURE_…``) and
falls back to what the platform gives a machine or pod; what a file says wins.
"""

from __future__ import annotations

import configparser
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from weightd.errors import OriginFailed
from weightd.origins.allowing import check_endpoint
from weightd.origins.contract import Patience, Trust
from weightd.origins.credentials import as_settings, read_credential
from weightd.origins.reference import Reference

if TYPE_CHECKING:
    from obstore.store import ObjectStore, S3Store

_FOREVER: Final = timedelta(days=30)
"""A bound of the client's own on a whole body; ours is on its going on."""

_KNOWN: Final[Mapping[str, frozenset[str]]] = {
    "s3": frozenset(
        {
            "access_key_id",
            "endpoint",
            "endpoint_url",
            "region",
            "request_payer",
            "secret_access_key",
            "session_token",
            "skip_signature",
            "virtual_hosted_style_request",
        }
    ),
    "gs": frozenset({"base_url", "service_account_key", "skip_signature"}),
    "az": frozenset(
        {
            "account_key",
            "account_name",
            "client_id",
            "client_secret",
            "endpoint",
            "sas_key",
            "sas_token",
            "skip_signature",
            "tenant_id",
        }
    ),
}
# What an address is signed by whose signature is then left out.
_NOBODY: Final = {
    "access_key_id": "nobody",
    "secret_access_key": "nobody",
    "skip_signature": "false",
}
_PREFIXES: Final = ("aws_", "google_", "azure_storage_", "azure_")
_ENDPOINTS: Final = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


@dataclass(frozen=True, slots=True)
class Stores:
    """What reads one bucket.

    ``client`` lists and reads.  ``addresses`` makes an address of an object
    that anybody may read from for a while, by nobody's leave but its own
    keys'; ``unsigned`` says to leave its signature out, since everybody may
    read.  None where an address takes more than keys.
    """

    client: ObjectStore
    addresses: S3Store | None = None
    unsigned: bool = False


def open_stores(
    reference: Reference, trust: Trust, patience: Patience, credential: str | None
) -> Stores:
    """The clients of the bucket that a reference names; nothing is asked of it yet.

    Raises OriginFailed for settings that make no client, InvalidRequest for a
    credential that there is not.
    """
    try:
        from obstore import store
        from obstore.exceptions import BaseError
    except ImportError:
        words = f"{reference.kind}:// needs another package: pip install 'weightd[objects]'"
        raise OriginFailed(reference.text, words, retryable=False) from None
    settings = _settings(reference, trust, credential)
    common: dict[str, Any] = {
        "client_options": _client_options(reference, trust, patience, settings),
        # A cut body and a busy store are retried by whoever fetches, who knows what is here.
        "retry_config": {"max_retries": 0, "retry_timeout": _FOREVER},
    }
    bucket = reference.authority
    config: Any = settings
    try:
        if reference.kind == "gs":
            return Stores(store.GCSStore(bucket, config=config, **common))
        if reference.kind == "az":
            return Stores(store.AzureStore(bucket, config=config, **common))
        client = store.S3Store(bucket, config=config, **common)
        if "request_payer" in settings or os.environ.get("AWS_REQUEST_PAYER"):
            return Stores(client)
        if not _is_anonymous(settings):
            return Stores(client, client)
        config = {**settings, **_NOBODY}
        return Stores(client, store.S3Store(bucket, config=config, **common), unsigned=True)
    except (BaseError, ValueError, OSError) as error:
        # What it says may repeat what it was given.
        words = f"its settings make no client ({type(error).__name__}); see to its credential"
        raise OriginFailed(reference.text, words, retryable=False) from None


def _is_anonymous(settings: Mapping[str, str]) -> bool:
    told = settings.get("skip_signature") or os.environ.get("AWS_SKIP_SIGNATURE", "")
    return told.lower() == "true"


def _settings(reference: Reference, trust: Trust, name: str | None) -> dict[str, str]:
    """The client's settings, by its own names for them."""
    settings: dict[str, str] = {}
    if name is not None:
        secret = read_credential(reference.text, name, trust)
        settings = _of_file(reference, secret, f"credential {name!r}")
    elif reference.kind == "s3":
        settings = _profile(os.environ)
    if "true" in reference.option("anonymous"):
        settings = {one: value for one, value in settings.items() if "endpoint" in one}
        settings["skip_signature"] = "true"
    for region in reference.option("region"):
        settings["region"] = region
    return settings


def _of_file(reference: Reference, secret: str, what: str) -> dict[str, str]:
    found = as_settings(reference.text, secret, what)
    if reference.kind == "gs" and ("private_key" in found or "type" in found):
        # The file that Google gives out is itself the credential.
        return {"service_account_key": json.dumps(json.loads(secret))}
    settings = {}
    for given, value in found.items():
        prefix = next((one for one in _PREFIXES if given.startswith(one)), "")
        name = given.removeprefix(prefix)
        if name == "anonymous":
            name = "skip_signature"
        if name not in _KNOWN[reference.kind]:
            known = ", ".join(sorted(_KNOWN[reference.kind]))
            words = f"{what} has a {given!r:.60} that is not understood; there are {known}"
            raise OriginFailed(reference.text, words, retryable=False)
        settings[name] = value
    return settings


def _profile(environ: Mapping[str, str]) -> dict[str, str]:
    """Keys and region of the shared files of AWS's tools, which the client does not read.

    Nothing where the environment has keys of its own, or there are no files.
    """
    if environ.get("AWS_ACCESS_KEY_ID"):
        return {}
    profile = environ.get("AWS_PROFILE", "default")
    home = Path(environ.get("HOME", "/")) / ".aws"
    keys = environ.get("AWS_SHARED_CREDENTIALS_FILE", str(home / "credentials"))
    config = environ.get("AWS_CONFIG_FILE", str(home / "config"))
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read([config, keys], encoding="utf-8")
    except (configparser.Error, UnicodeDecodeError, OSError):
        return {}
    found: dict[str, str] = {}
    for section in (f"profile {profile}", profile):
        if parser.has_section(section):
            found.update(parser.items(section))
    settings = {
        given.removeprefix("aws_"): value
        for given, value in found.items()
        if given.removeprefix("aws_") in _KNOWN["s3"]
    }
    if environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION"):
        settings.pop("region", None)
    return settings


def _client_options(
    reference: Reference, trust: Trust, patience: Patience, settings: Mapping[str, str]
) -> dict[str, object]:
    """How the client connects.  Raises OriginFailed."""
    endpoint = _endpoint(reference, settings)
    if endpoint is not None:
        check_endpoint(reference, endpoint)
    options: dict[str, object] = {
        # Only the operator names an endpoint, so only the operator can leave TLS out.
        "allow_http": endpoint is not None and endpoint.startswith("http://"),
        "connect_timeout": timedelta(seconds=patience.connect),
        "read_timeout": timedelta(seconds=patience.progress),
        "timeout": _FOREVER,
    }
    if trust.ca_file is not None:
        try:
            options["root_certificate"] = Path(trust.ca_file).read_bytes()
        except OSError as error:
            words = f"ca_file {trust.ca_file} cannot be read ({error.strerror})"
            raise OriginFailed(reference.text, words, retryable=False) from None
    return options


def _endpoint(reference: Reference, settings: Mapping[str, str]) -> str | None:
    for name in ("endpoint", "endpoint_url", "base_url"):
        if name in settings:
            return settings[name]
    if "service_account_key" in settings:
        told = json.loads(settings["service_account_key"]).get("gcs_base_url")
        return told if isinstance(told, str) else None
    named = (os.environ.get(variable) for variable in _ENDPOINTS[reference.kind])
    return next((one for one in named if one), None)
