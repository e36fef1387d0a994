"""The thresholds for the doctor's checks, section [doctor]."""

import msgspec

MIB = 1024 * 1024


class DoctorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The doctor's thresholds. The defaults come from the hub specification, section 6.5, where
    given.

    On a small disk the two limits in bytes are at most half and a quarter of the disk's size.

    Changes in this section take effect without a restart.
    """

    disk_warning_bytes: int = 1024 * MIB  # free disk space below this: warning
    disk_warning_percent: float = 10.0  # free disk space below this share: warning
    disk_error_bytes: int = 500 * MIB  # free disk space below this: error
    disk_error_percent: float = 5.0  # free disk space below this share: error
    wal_warning_bytes: int = 100 * MIB  # write-ahead log above this size: warning
    loop_delay_warning_seconds: float = 0.5  # event loop delay above this: warning
    check_seconds_max: float = 5.0  # time limit for a cheap check
