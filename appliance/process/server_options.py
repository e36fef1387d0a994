"""Defines the server process's flags: `agentlipd` writes the flags, and the server parses them."""

import argparse
from pathlib import Path
from typing import Any

import msgspec


class ServerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options. Each field is a flag with its name, for example `--as-root`."""

    host: str | None = None
    port: int | None = None
    config: Path | None = None
    no_limits: bool = False
    unsafe_network: bool = False
    accept_loss: tuple[str, ...] = ()
    read_only: bool = False
    migrate_without_backup: bool = False
    as_root: bool = False
    check: bool = False  # validate the settings, and end

    def arguments(self) -> list[str]:
        words: list[str] = []
        for name, value in msgspec.structs.asdict(self).items():
            values = value if isinstance(value, tuple) else (value,)
            for item in values:
                if item is not None and item is not False:
                    words += [_flag(name)] if item is True else [_flag(name), str(item)]
        return words


def parse(arguments: list[str] | None) -> tuple[Path, ServerOptions]:
    """Return the workspace and the options. Exits with a message if they are wrong."""
    parser = argparse.ArgumentParser(
        prog="appliance.server", allow_abbrev=False, argument_default=argparse.SUPPRESS
    )
    parser.add_argument("--workspace", type=Path, required=True)
    for field in msgspec.structs.fields(ServerOptions):
        kinds = {bool: "store_true", tuple[str, ...]: "append"}
        parser.add_argument(_flag(field.name), action=kinds.get(field.type, "store"))
    given = vars(parser.parse_args(arguments))
    workspace = given.pop("workspace")
    try:
        return workspace, msgspec.convert(given, ServerOptions, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        parser.error(str(error))


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _path(kind: type, value: Any) -> Any:
    return kind(value)
