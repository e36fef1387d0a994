# The options of ../ops/systemd/agentlip.service that limit the service; a test compares them.
# `dataDir`: the only writable directory, beside `writable`.
{ lib }:
{
  dataDir,
  writable ? [ ],
}:

let
  isBelow = lib.any (folder: dataDir == folder || lib.hasPrefix "${folder}/" dataDir);
in
{
  NoNewPrivileges = true;
  RestrictAddressFamilies = [
    "AF_INET"
    "AF_INET6"
    "AF_UNIX"
  ];
  RestrictNamespaces = true;
  RestrictRealtime = true;
  RestrictSUIDSGID = true;
  LockPersonality = true;
  SystemCallArchitectures = "native";
  # Landlock and seccomp confine the plugins.
  SystemCallFilter = [
    "@system-service seccomp"
    "landlock_create_ruleset landlock_add_rule landlock_restrict_self"
    "~@privileged"
  ];
  SystemCallErrorNumber = "EPERM";
  CapabilityBoundingSet = "";
  AmbientCapabilities = "";
  ProtectSystem = "strict";
  ReadWritePaths = [ dataDir ] ++ writable;
  ProtectHome =
    if
      isBelow [
        "/home"
        "/root"
        "/run/user"
      ]
    then
      "read-only"
    else
      true;
  PrivateTmp =
    !isBelow [
      "/tmp"
      "/var/tmp"
    ];
  PrivateDevices = true;
  ProtectClock = true;
  ProtectControlGroups = true;
  ProtectHostname = true;
  ProtectKernelLogs = true;
  ProtectKernelModules = true;
  ProtectKernelTunables = true;
  ProtectProc = "invisible";
}
