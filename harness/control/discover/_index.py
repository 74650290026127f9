"""Ask the package index that uv and pip are set up for what it has of a package."""

from __future__ import annotations

import base64
import datetime as dt
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

__all__ = ["Index", "IndexFailed", "Release"]

_DEFAULT: Final = "https://pypi.org/simple"
_JSON: Final = "application/vnd.pypi.simple.v1+json"
_PATIENCE: Final = 60
#: Variables that name an index, the first that is set counts: uv solves the stacks, so its own come first.
_VARIABLES: Final = ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL")
_PIP: Final = (sys.executable, "-m", "pip")
_BUNDLES: Final = ("SSL_CERT_FILE", "PIP_CERT", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


class IndexFailed(Exception):
    """The index did not answer, or not as an index does."""


@dataclass(frozen=True)
class Release:
    """One release of a package, as the index has it."""

    version: Version
    #: when its first file came
    day: dt.date
    yanked: bool = False
    #: why it was yanked, where that was said
    reason: str = ""


class Index:
    """A package index with the JSON form of the simple API."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url.rstrip("/"))
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise IndexFailed(f"the package index must be an http or https address, found {_bare(url)!r}")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        place = f"{host}:{parts.port}" if parts.port else host
        #: without a password, so that it may be shown
        self.url = urllib.parse.urlunsplit((parts.scheme, place, parts.path, "", ""))
        self._authorization = ""
        if parts.username is not None:
            who = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._authorization = f"Basic {base64.b64encode(who.encode()).decode()}"

    @classmethod
    def configured(cls, environ: Mapping[str, str]) -> Index:
        """The one that uv or pip would ask.  Raises IndexFailed where what is set is no address."""
        for name in _VARIABLES:
            if value := environ.get(name):
                return cls(value.partition("=")[2] if re.match(r"\w+=", value) else value)
        return cls(_of_pip() or _DEFAULT)

    def releases(self, package: str) -> list[Release]:
        """All of them, by day and version.  Raises IndexFailed."""
        who = f"the package index {self.url}, asked for {package},"
        return _releases(self._files(package, who), who)

    def _files(self, package: str, who: str) -> list[dict[str, Any]]:
        headers = {"Accept": _JSON, "User-Agent": "thawcheck"}
        request = urllib.request.Request(f"{self.url}/{package}/", headers=headers)  # noqa: S310  (see above)
        if self._authorization:  # for this host alone, not for one that it sends us on to
            request.add_unredirected_header("Authorization", self._authorization)
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE, context=_trust()) as answer:  # noqa: S310
                kind = answer.headers.get_content_type()
                body = answer.read()
        except urllib.error.HTTPError as error:
            error.close()  # it is the answer, too
            raise IndexFailed(f"{who} answered {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            raise IndexFailed(f"{who} cannot be reached: {getattr(error, 'reason', error)!s}") from None
        if kind != _JSON:
            raise IndexFailed(f"{who} answered {kind}, and {_JSON} is needed")
        try:
            return list(json.loads(body)["files"])
        except (ValueError, KeyError, TypeError) as error:
            raise IndexFailed(f"{who} answered no list of files: {type(error).__name__}: {error}") from None


def _bare(url: str) -> str:
    """Without what stands before the host, which may be a password."""
    return re.sub(r"//[^@/]*@", "//", url)


def _releases(files: list[dict[str, Any]], who: str) -> list[Release]:
    found: dict[Version, list[dict[str, Any]]] = {}
    for file in files:
        version = _version_of(str(file.get("filename", "")))
        if version is not None:
            found.setdefault(version, []).append(file)
    releases = []
    for version, its in found.items():
        try:
            day = min(dt.date.fromisoformat(file["upload-time"][:10]) for file in its)
        except (KeyError, ValueError, TypeError):
            raise IndexFailed(f"{who} does not tell when {version} was uploaded: it must speak version 1.1") from None
        # Installers take a release as long as one of its files is not yanked.
        yanked = all(file.get("yanked", False) is not False for file in its)
        reasons = [file["yanked"] for file in its if isinstance(file.get("yanked"), str)]
        releases.append(Release(version, day, yanked, next(filter(None, reasons), "") if yanked else ""))
    return sorted(releases, key=lambda one: (one.day, one.version))


def _version_of(filename: str) -> Version | None:
    """None for the formats of old, which nothing installs any more."""
    try:
        if filename.endswith(".whl"):
            return parse_wheel_filename(filename)[1]
        return parse_sdist_filename(filename)[1]
    except (InvalidWheelFilename, InvalidSdistFilename, InvalidVersion):
        return None


def _trust() -> ssl.SSLContext:
    bundle = next(filter(None, map(os.environ.get, _BUNDLES)), None)
    return ssl.create_default_context(cafile=bundle)


def _of_pip() -> str:
    """The index of pip's configuration files; empty where none is set, or there is no pip."""
    said = subprocess.run([*_PIP, "config", "list"], capture_output=True, text=True, check=False).stdout
    found = dict(re.findall(r"^(install|global)\.index-url='(.*)'$", said, re.MULTILINE))
    return found.get("install") or found.get("global") or ""
