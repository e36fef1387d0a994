"""Defines the [backup] settings: schedule, retention, encryption and targets."""

from typing import Annotated

import msgspec
from msgspec import Meta

NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
TargetName = Annotated[str, Meta(pattern="^[a-z0-9][a-z0-9-]{0,39}$")]


class TargetSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[[backup.targets]]: a place outside the workspace to which backups are copied."""

    name: TargetName  # names the target in commands, metrics and state files
    url: str  # file:///mnt/backups or s3://bucket/prefix
    endpoint: str = ""  # an S3-compatible server's address; "" for the provider's own
    region: str = ""  # the bucket's region, if the server needs one
    access_key_file: str = ""  # file with the access key's id; "" reads the environment
    secret_key_file: str = ""  # file with the secret key; "" reads the environment
    ca_file: str = ""  # file with certificates (PEM) that are trusted in addition to the system's
    allow_http: bool = False  # also send to an http:// endpoint that is not on this machine
    allow_plain: bool = False  # also copy backups that are not encrypted, which contain secrets
    prune: bool = False  # after an upload, remove backups that the retention does not keep


class BackupSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """[backup]: by default a verified backup every hour; those of a day are kept, and of 7 days."""

    enabled: bool = True  # make backups on a schedule while the appliance runs
    every_seconds: Seconds = 3600.0  # seconds between scheduled backups; more if backups take long
    first_seconds: Seconds = 30.0  # seconds from the first message to the first backup
    verify: bool = True  # check each scheduled backup by a restore into a scratch directory
    directory: str = ".agentlip/backups"  # backup directory, relative to the workspace
    recipients: tuple[str, ...] = ()  # age public keys; a backup is encrypted for all recipients
    identity_file: str = ""  # file with an age secret key, which verify and restore need
    keep_last: NotNegative = 7  # newest backups to keep, whatever their age
    keep_hourly: NotNegative = 24  # hours for which each hour's newest backup is kept
    keep_daily: NotNegative = 7  # days for which each day's newest backup is kept
    keep_weekly: NotNegative = 0  # weeks for which each week's newest backup is kept
    keep_monthly: NotNegative = 0  # months for which each month's newest backup is kept
    keep_yearly: NotNegative = 0  # years for which each year's newest backup is kept
    seconds_max: Seconds = 3600.0  # a backup, check or upload that takes longer is stopped
    free_bytes_min: NotNegative = 256 * 1024 * 1024  # free space that a backup leaves on the disk
    targets: tuple[TargetSettings, ...] = ()  # where backups are copied to; see TargetSettings

    @property
    def age_warning_seconds(self) -> float:
        """Return the age above which the doctor warns: 36 hours, or one and a half intervals for
        less frequent backups."""
        return max(129_600.0, 1.5 * self.every_seconds)
