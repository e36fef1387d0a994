"""Where good ends: the thresholds of the doctor's checks, section [doctor]."""

import msgspec

MIB = 1024 * 1024


class DoctorSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults are those of the hub specification, section 6.5, where it names any.

    The two numbers of bytes are lowered on a small volume, where they could never be reached:
    to a half and a quarter of its size.
    """

    disk_warning_bytes: int = 1024 * MIB  # free space below this is worth a word
    disk_warning_percent: float = 10.0  # the same, of the whole disk
    disk_error_bytes: int = 500 * MIB  # free space below this needs a hand soon
    disk_error_percent: float = 5.0  # the same, of the whole disk
    wal_warning_bytes: int = 100 * MIB  # a log that long has not been checkpointed for long
    wal_error_bytes: int = 500 * MIB  # and soon the store refuses writes
    loop_delay_warning_seconds: float = 0.5  # everybody waits that long for a turn
    loop_delay_error_seconds: float = 5.0  # clients give up by then
    writer_warning_seconds: float = 5.0  # a batch takes milliseconds; a slow disk some seconds
    token_expiry_warning_days: float = 7.0  # a token that ends within them needs a successor
    send_waiting_warning_seconds: float = 3600.0  # a broker is away for minutes, not for hours
    oldest_ready_warning_seconds: float = 3600.0  # an envelope that long ready misses a taker
    ask_seconds_max: float = 2.0  # for the answer of a running appliance
    check_seconds_max: float = 5.0  # for one cheap check; it says so when it did not finish
    expensive_seconds_max: float = 3600.0  # for one of `--all`
    findings_max: int = 20  # of one check; the rest is counted
