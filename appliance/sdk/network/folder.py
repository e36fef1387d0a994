"""The folder of an agent: its name, its relay and its key.

    agent.json   name, relay, endpoint
    key          the private key (PKCS #8, base64), readable only by its owner
    key.next     the key that replaces it, while a rotation has not ended
    key.former   the key before the last rotation, for an hour

With the option `keyring`, the keys are in the system's keyring instead. A folder belongs to one
agent, and can move to another machine with all its files.
"""

import os
import stat
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from appliance.kernel.config import secret
from appliance.kernel.errors import Conflict, Forbidden, Missing, Unavailable
from appliance.kernel.whole_file import new_file, sync_directory, write_whole
from appliance.network.keys import AgentKey
from appliance.network.names import check_agent_name


class NoNetworkAgent(Missing):
    code = "NO_NETWORK_AGENT"
    default_message = "this folder has no network agent"
    default_hint = "agentlip network init NAME --relay URL --endpoint URL # or --folder DIR"


class AgentFolderExists(Conflict):
    code = "ALREADY_EXISTS"
    default_message = "this folder has an agent already"
    default_hint = "agentlip network contacts uses it; --folder DIR makes one elsewhere"


class KeyExposed(Forbidden):
    code = "KEY_EXPOSED"
    default_message = "other users can read the private key"
    default_hint = "run chmod 600 on the file; replace the key with agentlip network rotate-key"


class KeyringFailed(Unavailable):
    code = "KEYRING_FAILED"
    default_message = "the system's keyring can't be used"
    default_hint = "pip install keyring, and unlock it; or make the agent without --keyring"


class AgentConfig(Struct, frozen=True):
    """An agent's configuration. `endpoint`: the URL at which other agents reach this one.
    `loopback` allows other endpoints on this machine, without TLS, for tests. `keyring`: where
    the key is. `plain_http` allows a relay without TLS on another machine. `lan` allows other
    endpoints at private addresses. `direct`: own addresses that contacts in the LAN try first."""

    name: str
    relay: str
    endpoint: str
    loopback: bool = False
    keyring: bool = False
    plain_http: bool = False
    lan: bool = False
    direct: tuple[str, ...] = ()


class AgentFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def create(cls, path: Path, config: AgentConfig, key: AgentKey | None = None) -> "AgentFolder":
        """Create an agent, with the given key or a new one. Raises AgentFolderExists."""
        check_agent_name(config.name)
        for made in (path.parent, path):
            made.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = cls(path)
        if any((path / name).exists() for name in ("agent.json", "key")):
            raise AgentFolderExists
        folder.configure(config)
        try:
            folder._write_key("key", key or AgentKey.generate())
        except FileExistsError:
            raise AgentFolderExists from None
        return folder

    def configure(self, config: AgentConfig) -> None:
        write_whole(self.path / "agent.json", msgspec.json.encode(config))

    def config(self) -> AgentConfig:
        """Return the configuration. Raises NoNetworkAgent."""
        try:
            return msgspec.json.decode((self.path / "agent.json").read_bytes(), type=AgentConfig)
        except (OSError, ValueError) as error:
            variable = "AGENTLIP_NETWORK_FOLDER"
            source = f"{variable}: " * (os.environ.get(variable) == str(self.path))
            raise NoNetworkAgent(f"{source}no network agent in {self.path}: {error}") from None

    def key(self) -> AgentKey:
        return self._read_key("key")

    def next_key(self) -> AgentKey:
        """Return a rotation's key, the same one until `promote_next`."""
        with suppress(FileExistsError):
            self._write_key("key.next", AgentKey.generate())
        return self._read_key("key.next")

    def promote_next(self) -> None:
        """Replace the key by the next one, and keep it as the former one."""
        self.forget_former()
        self._write_key("key.former", self.key())
        if self.config().keyring:
            self._keyring("set_password", "key", self.next_key().pkcs8())
            self._keyring("delete_password", "key.next")
            return
        (self.path / "key.next").replace(self.path / "key")
        sync_directory(self.path)

    def former_key(self) -> AgentKey:
        return self._read_key("key.former")

    def forget_former(self) -> None:
        """Delete the former key, if there is one."""
        if not self.config().keyring:
            (self.path / "key.former").unlink(missing_ok=True)
        elif self._keyring("get_password", "key.former") is not None:
            self._keyring("delete_password", "key.former")

    def _read_key(self, name: str) -> AgentKey:
        """Read a key. Raises NoNetworkAgent, KeyExposed, KeyringFailed, BadKey."""
        if self.config().keyring:
            text = self._keyring("get_password", name)
            if text is None:
                raise NoNetworkAgent("the keyring has no key for this agent")
            return AgentKey.of(text)
        path = self.path / name
        try:
            mode = path.stat().st_mode
        except OSError:
            raise NoNetworkAgent from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KeyExposed
        return AgentKey.of(secret(str(path), "the agent's key"))

    def _write_key(self, name: str, key: AgentKey) -> None:
        """Write a key. Raises FileExistsError if it is there."""
        if self.config().keyring:
            if self._keyring("get_password", name) is not None:
                raise FileExistsError
            self._keyring("set_password", name, key.pkcs8())
            return
        with new_file(self.path / name) as file:
            file.write(key.pkcs8().encode() + b"\n")
        sync_directory(self.path)

    def _keyring(self, verb: str, name: str, *secret: str) -> Any:
        """Call the library `keyring`, which uses the system's keyring."""
        config = self.config()
        entry = f"{config.name}@{config.relay} {name}"
        try:
            return getattr(import_module("keyring"), verb)("agentlip network", entry, *secret)
        except Exception as error:  # the library is missing, or a backend's error
            raise KeyringFailed(details={"reason": type(error).__name__}) from None
