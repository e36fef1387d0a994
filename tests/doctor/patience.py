"""The doctor's limits for tests whose checks must not depend on how fast the machine is."""

PATIENCE = {
    "AGENTLIP_DOCTOR__CHECK_SECONDS_MAX": "60",
    "AGENTLIP_DOCTOR__LOOP_DELAY_WARNING_SECONDS": "100",
}
"""Environment variables: a slow answer, check, event loop or writer is no finding."""
