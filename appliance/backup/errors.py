"""Defines the backup errors. Each has a separate exit code."""

from typing import ClassVar

from appliance.kernel.errors import (
    ApplianceError,
    Conflict,
    Forbidden,
    Invalid,
    Missing,
    Unavailable,
)


class BackupError(ApplianceError):
    """A backup or restore error, with the exit code for scripts."""

    exit_code: ClassVar[int]


class BackupNotFound(Missing, BackupError):
    code = "BACKUP_NOT_FOUND"
    default_message = "no backup has this name"
    default_hint = "agentlip backup list"
    exit_code = 10


class BackupDamaged(Invalid, BackupError):
    code = "BACKUP_DAMAGED"
    default_message = "the backup is incomplete or damaged"
    default_hint = "agentlip backup list --json; use another backup that was verified"
    exit_code = 11


class BackupRunning(Conflict, BackupError):
    code = "BACKUP_RUNNING"
    default_message = "another process is making, removing or restoring backups"
    default_hint = "wait until it ends: agentlip backup list"
    exit_code = 12


class BackupNotWritable(Unavailable, BackupError):
    code = "BACKUP_NOT_WRITABLE"
    default_message = "the backup can't be written"
    default_hint = "free space and check the owner: df -h .agentlip; ls -ld .agentlip/backups"
    exit_code = 13


class CutNotPossible(Unavailable, BackupError):
    code = "BACKUP_CUT_NOT_POSSIBLE"
    default_message = "the stores could not be paused for a common cut in time"
    default_hint = "try again when the appliance is less busy"
    exit_code = 14


class KeyRefused(Forbidden, BackupError):
    code = "BACKUP_KEY_REFUSED"
    default_message = "the backup is encrypted for another key"
    default_hint = "name the right key: --identity FILE, or backup.identity_file"
    exit_code = 15


class VersionRefused(Conflict, BackupError):
    code = "BACKUP_NEWER"
    default_message = "the backup was written by a newer version"
    default_hint = "install that version: agentlip backup show NAME"
    exit_code = 16


class VerificationFailed(Invalid, BackupError):
    code = "BACKUP_VERIFICATION_FAILED"
    default_message = "the backup restores to other content than recorded"
    default_hint = "agentlip backup create # keep the bad one until a new one is verified"
    exit_code = 17


class TargetFailed(Unavailable, BackupError):
    code = "BACKUP_TARGET_FAILED"
    default_message = "a target refused or lost part of the backup"
    default_hint = "agentlip backup targets; then: agentlip backup upload"
    exit_code = 18


class StoreNotCopied(Unavailable, BackupError):
    code = "BACKUP_STORE_NOT_COPIED"
    default_message = "a store is missing, suspect or damaged, so no backup was made"
    default_hint = "agentlip doctor --all"
    exit_code = 19


class RecipientRefused(Invalid, BackupError):
    code = "BACKUP_RECIPIENT_REFUSED"
    default_message = "a backup recipient is not an age public key"
    default_hint = "write public keys as age-keygen prints them, age1…, in backup.recipients"
    exit_code = 20


class BackupLibraryMissing(Unavailable, BackupError):
    code = "BACKUP_LIBRARY_MISSING"
    default_message = "a library for backups is not installed"
    default_hint = "pip install 'agentlip[appliance]'"
    exit_code = 21


class TargetUnreachable(TargetFailed):
    """A missing response, an overloaded server's response, or a broken connection."""

    code = "BACKUP_TARGET_UNREACHABLE"
    default_message = "the target does not answer"
    default_hint = "agentlip backup targets; check the endpoint, the network and the certificate"


class TargetRefused(Forbidden, BackupError):
    """A refused request. Repeating the request does not help."""

    code = "BACKUP_TARGET_REFUSED"
    default_message = "the target refused the request"
    default_hint = "check the target's bucket, region, keys and ca_file: agentlip config"
    exit_code = 22


class TargetObjectMissing(Missing, BackupError):
    code = "BACKUP_TARGET_OBJECT_MISSING"
    default_message = "the target does not have this file"
    default_hint = "agentlip backup targets; then: agentlip backup upload"
    exit_code = 18


class PlainRefused(Forbidden, BackupError):
    code = "BACKUP_PLAIN_REFUSED"
    default_message = "the backup contains secrets and is not encrypted"
    default_hint = "set backup.recipients and make a new backup, or set the target's allow_plain"
    exit_code = 23


class RestoreRefused(Conflict, BackupError):
    code = "RESTORE_REFUSED"
    default_message = "this backup can't be restored here"
    default_hint = "restore it into a new directory: agentlip backup restore NAME --into DIR --yes"
    exit_code = 25


class VerificationInconclusive(Unavailable, BackupError):
    code = "BACKUP_NOT_VERIFIED"
    default_message = "the backup check could not be finished and proves nothing"
    default_hint = "agentlip backup verify NAME --identity FILE"
    exit_code = 26
