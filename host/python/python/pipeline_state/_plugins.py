"""Loading plugins and opening stores."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipeline_state import _native
from pipeline_state._errors import InvalidInputError
from pipeline_state._store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting of a plugin."""

    name: str
    """One that ends in `*` stands for all names that begin so."""
    kind: Literal["text", "integer", "boolean"]
    role: str | None
    """What it means to the host: `host`, `port`, `tls`, `user` or `password`."""
    label: str
    default: str | None
    sensitive: bool
    env: str
    """The environment variable that gives it."""


@dataclass(frozen=True, slots=True)
class Description:
    """A plugin, and what it says of itself."""

    scheme: str
    """The scheme of the URIs that it serves here."""
    source: str
    """Where it is from: a path, or `embedded`."""
    digest: str
    name: str
    version: str
    settings: list[Setting]
    plain_port: int
    tls_port: int
    needs_credentials: bool


class Plugins:
    """The plugins of a process, by scheme: without more, the one for ClickHouse. Make it once.

    - `directories` and `files` load more plugins. A file may be given with the digest that it must have; `plugins_file`
      is a list of them in TOML.
    - `allow` says which origins URIs may name (`"https://*.example.com:8443, http://10.0.0.0/8:8123"`); `deny_private`
      that none may be in this machine or a private network; `trust` which schemes' plugins may have user and password,
      if they ask for them.
    - `ca_file` (PEM) and `native_roots` name authorities to trust beside Mozilla's list; `client_certificate` is the
      chain and the key of this side, as two files.
    - `connections` is how many a plugin may have to one origin (64), `call_deadline` how many seconds a call may take
      (120), `memory` how many bytes it may use (512 MiB).
    - `cache_folder` keeps compiled plugins in place of the user's cache folder. Whoever can write to it can run code
      here.
    """

    def __init__(
        self,
        *,
        embedded: bool = True,
        directories: Iterable[str | os.PathLike[str]] = (),
        files: Mapping[str | os.PathLike[str], str | None] | None = None,
        plugins_file: str | os.PathLike[str] | None = None,
        cache_folder: str | os.PathLike[str] | None = None,
        allow: str | None = None,
        deny_private: bool = False,
        trust: Iterable[str] = (),
        ca_file: str | os.PathLike[str] | None = None,
        native_roots: bool = False,
        client_certificate: tuple[str | os.PathLike[str], str | os.PathLike[str]] | None = None,
        connections: int | None = None,
        call_deadline: float | None = None,
        memory: int | None = None,
    ) -> None:
        """Loads them: some milliseconds, and the first time of all some 100."""
        chain_and_key = client_certificate and (Path(client_certificate[0]), Path(client_certificate[1]))
        self._native = _native.Plugins(
            {
                "embedded": embedded,
                "directories": [Path(folder) for folder in directories],
                "files": [(Path(file), digest) for file, digest in (files or {}).items()],
                "plugins_file": _path(plugins_file),
                "cache_folder": _path(cache_folder),
                "allow": allow,
                "deny_private": deny_private,
                "trust": list(trust),
                "ca_file": _path(ca_file),
                "native_roots": native_roots,
                "client_certificate": chain_and_key,
                "connections": connections,
                "call_deadline": call_deadline,
                "memory": memory,
            }
        )

    @classmethod
    def from_environment(cls) -> Plugins:
        """Those that the program `pipeline-state` would load, by the same variables.

        `PIPELINE_STATE_PLUGINS_FILE`, `_ALLOW` (with commas), `_CA_FILE`, `_CLIENT_CERT` and `_CLIENT_KEY`.
        """

        def variable(name: str) -> str | None:
            return os.environ.get(f"PIPELINE_STATE_{name}") or None

        chain, key = variable("CLIENT_CERT"), variable("CLIENT_KEY")
        if (chain is None) != (key is None):
            message = "PIPELINE_STATE_CLIENT_CERT and PIPELINE_STATE_CLIENT_KEY go together; one of them is missing"
            raise InvalidInputError(message)
        return cls(
            plugins_file=variable("PLUGINS_FILE"),
            allow=variable("ALLOW"),
            ca_file=variable("CA_FILE"),
            client_certificate=(chain, key) if chain and key else None,
        )

    def __iter__(self) -> Iterator[Description]:
        """The plugins in the order of their schemes."""
        for scheme, source, digest, name, version, settings, ports, needs_credentials in self._native.served():
            known = [Setting(*setting) for setting in settings]
            yield Description(scheme, source, digest, name, version, known, *ports, needs_credentials)

    def open(self, uri: str, settings: Mapping[str, object] | None = None, *, environment: bool = True) -> Store:
        """Opens the store that a URI and settings name. Nothing is sent: whether it can be reached shows at first use.

        A setting is, in this order: the one that is given here; with `environment`, the variables
        `PIPELINE_STATE_<SCHEME>_<NAME>` and `MELTANO_STATE_BACKEND_<SCHEME>_<NAME>`; what the URI says; the plugin's
        default. None and "" count as none.
        """
        given = [(name, _text(value)) for name, value in (settings or {}).items() if value is not None]
        return Store(self._native.open(uri, given, environment))


@cache
def _default(process: int) -> Plugins:
    # A forked process has none of the threads of the one that it was forked from.
    del process
    return Plugins.from_environment()


def open(uri: str, settings: Mapping[str, object] | None = None, *, environment: bool = True) -> Store:
    """Opens a store with the plugins of `Plugins.from_environment`, which are loaded once. See `Plugins.open`.

    >>> import pipeline_state
    >>> pipeline_state.open("redis://localhost/0")
    Traceback (most recent call last):
    pipeline_state._errors.UnknownSchemeError: no plugin serves the scheme `redis`; there are: clickhouse
    """
    return _default(os.getpid()).open(uri, settings, environment=environment)


def _path(path: str | os.PathLike[str] | None) -> Path | None:
    return None if path is None else Path(path)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
