"""Opens the bucket for published segments, with the backup code and backup keys."""

import os
from urllib.parse import urlsplit

import msgspec

from appliance.backup.settings import BackupSettings, TargetSettings
from appliance.backup.target_s3 import S3Target as S3Target
from appliance.backup.targets import ATTEMPTS_MAX
from appliance.kernel import config
from appliance.kernel.errors import Invalid
from appliance.workspace.datadir import DataDir


class _BackupSection(msgspec.Struct, frozen=True):
    """The section [backup] of agentlip.toml."""

    backup: BackupSettings = BackupSettings()


def open_target(url: str, datadir: DataDir) -> S3Target:
    """Return the target for a URL; nothing is sent yet. Endpoint and keys come from the backup
    target in the same bucket, or from the environment. Raises Invalid."""
    bucket = urlsplit(url)
    if bucket.scheme != "s3" or not bucket.netloc or bucket.username is not None:
        raise Invalid(f"{url} is not s3://BUCKET/PREFIX", hint='target = "s3://bucket/prefix"')
    settings = config.load(_BackupSection, datadir.settings_file, os.environ).backup
    same = (entry for entry in settings.targets if urlsplit(entry.url).netloc == bucket.netloc)
    target = next(same, TargetSettings(name="export", url=url))
    target = msgspec.structs.replace(target, name="export", url=url)
    return S3Target(target, settings, datadir.workspace, ATTEMPTS_MAX)
