# The image of ../Dockerfile, made of Nix packages. The result is a script that writes the image:
#
#   $(nix build --print-out-paths .#image) | docker load
{
  agentlip,
  bash,
  coreutils,
  dockerTools,
  runCommand,
  tini,
  unixtools,
  writeTextDir,
}:

let
  entrypoint = runCommand "docker-entrypoint" { } ''
    install -D -m 0755 ${../ops/docker-entrypoint} $out/bin/docker-entrypoint
  '';
  users = [
    (writeTextDir "etc/passwd" "agentlip:x:10001:10001::/data:/bin/false\n")
    (writeTextDir "etc/group" "agentlip:x:10001:\n")
  ];
in
dockerTools.streamLayeredImage {
  name = "agentlip";
  tag = agentlip.version;
  created = "1970-01-01T00:00:01Z"; # a later one would change every layer

  contents = [
    agentlip
    bash # /bin/sh of the entrypoint
    coreutils
    dockerTools.caCertificates
    entrypoint
    tini
    unixtools.hostname
  ]
  ++ users;

  fakeRootCommands = ''
    install -d -m 1777 tmp
    install -d -o 10001 -g 10001 -m 0750 data
  '';

  config = {
    Entrypoint = [
      "tini"
      "--"
      "docker-entrypoint"
    ];
    Cmd = [ "up" ];
    User = "10001:10001";
    WorkingDir = "/data";
    Volumes."/data" = { };
    ExposedPorts."7464/tcp" = { };
    StopSignal = "SIGTERM";
    Env = [
      "PATH=/bin"
      "HOME=/data"
      "LANG=C.UTF-8"
      "PYTHONUNBUFFERED=1"
      "PYTHONDONTWRITEBYTECODE=1"
      "SSL_CERT_FILE=/etc/ssl/certs/ca-bundle.crt"
    ];
    # Durations are in nanoseconds.
    Healthcheck = {
      Test = [
        "CMD"
        "agentlipd"
        "status"
        "--workspace"
        "/data"
      ];
      Interval = 15000000000;
      Timeout = 10000000000;
      StartPeriod = 15000000000;
      Retries = 3;
    };
    Labels = {
      "org.opencontainers.image.title" = "Agentlip Appliance";
      "org.opencontainers.image.description" = "Self-hosted coordination appliance for AI agents";
      "org.opencontainers.image.licenses" = "MIT";
      "org.opencontainers.image.version" = agentlip.version;
    };
  };
}
