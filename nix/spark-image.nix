# The image of ../spark/Dockerfile, made of Nix packages. The result is a script that writes it:
#
#   $(nix build --print-out-paths .#sparkImage) | docker load
{
  agentlip,
  bash,
  coreutils,
  dockerTools,
  fetchMavenArtifact,
  gnugrep,
  gnused,
  jdk17_headless,
  lib,
  procps,
  python313,
  runCommand,
  tini,
  unixtools,
  writeTextDir,
}:

let
  ps = python313.pkgs;
  inherit (agentlip.locked) pyspark;

  # As in the group `spark` of pyproject.toml; a test compares them.
  dependencies = [
    ps.deltalake
    agentlip.locked.hdfs-native
    ps.msgspec
    ps.obstore
    ps.pandas
    pyspark
  ]
  ++ pyspark.optional-dependencies.sql;
  environment = python313.withPackages (_: dependencies);

  # Each line of the list that is no comment: coordinates and SHA-256.
  lines = lib.filter (line: line != "" && !lib.hasPrefix "#" line) (
    lib.splitString "\n" (builtins.readFile ../requirements/spark-jars.txt)
  );
  jars = map (
    line:
    let
      words = lib.splitString " " line;
      coordinates = lib.splitString ":" (lib.head words);
    in
    fetchMavenArtifact {
      groupId = lib.elemAt coordinates 0;
      artifactId = lib.elemAt coordinates 1;
      version = lib.elemAt coordinates 2;
      sha256 = lib.elemAt words 1;
    }
  ) lines;

  # /opt as in Spark's own images. Spark's folder is made of links, so that it has other settings.
  tree = runCommand "agentlip-spark-tree" { } ''
    mkdir -p $out/bin $out/opt/spark $out/opt/agentlip/appliance
    ln -s ${environment}/${python313.sitePackages}/pyspark/* $out/opt/spark/
    rm -f $out/opt/spark/conf $out/opt/spark/jars
    mkdir $out/opt/spark/jars
    ln -s ${environment}/${python313.sitePackages}/pyspark/jars/* $out/opt/spark/jars/
    for jar in ${lib.concatStringsSep " " jars}; do ln -s $jar/share/java/*.jar $out/opt/spark/jars/; done
    cp -r ${../spark/conf} $out/opt/spark/conf
    cp -r ${../spark} $out/opt/agentlip/spark
    cp -r ${../appliance/export/schemas} $out/opt/agentlip/schemas
    cp ${../appliance/__init__.py} $out/opt/agentlip/appliance/__init__.py
    cp -r ${../appliance/shared} $out/opt/agentlip/appliance/shared
    install -m 0755 ${../spark/entrypoint.sh} $out/opt/entrypoint.sh
    ln -s $out/opt/spark/bin/* $out/bin/
  '';
  users = [
    (writeTextDir "etc/passwd" "spark:x:185:185::/opt/spark/work-dir:/bin/false\n")
    (writeTextDir "etc/group" "spark:x:185:\n")
  ];
in
dockerTools.streamLayeredImage {
  name = "agentlip-spark";
  tag = agentlip.version;
  created = "1970-01-01T00:00:01Z"; # a later one would change every layer

  contents = [
    bash
    coreutils
    dockerTools.caCertificates
    dockerTools.usrBinEnv
    environment
    gnugrep
    gnused
    jdk17_headless
    procps
    tini
    tree
    unixtools.hostname
  ]
  ++ users;

  fakeRootCommands = ''
    install -d -m 1777 tmp
    install -d -o 185 -g 185 -m 0775 data scratch opt/spark/work-dir opt/spark/event-log
  '';

  config = {
    Entrypoint = [
      "tini"
      "-s"
      "-g"
      "--"
      "/opt/entrypoint.sh"
    ];
    Cmd = [ "help" ];
    User = "185:185";
    WorkingDir = "/opt/spark/work-dir";
    Volumes = {
      "/data" = { };
      "/scratch" = { };
    };
    Env = [
      "PATH=/bin"
      "LANG=C.UTF-8"
      "PYTHONUNBUFFERED=1"
      "PYTHONDONTWRITEBYTECODE=1"
      "JAVA_HOME=${jdk17_headless}"
      "SPARK_HOME=/opt/spark"
      "SPARK_EVENT_LOG_DIR=/opt/spark/event-log"
      "SPARK_LOCAL_DIRS=/scratch"
      "SPARK_SUBMIT_OPTS=-Djava.io.tmpdir=/scratch"
      "SPARK_DAEMON_JAVA_OPTS=-Djava.io.tmpdir=/scratch"
      "TMPDIR=/scratch"
      "PYSPARK_PYTHON=/bin/python3"
      "PYTHONPATH=/opt/agentlip"
      "AGENTLIP_SCHEMAS=/opt/agentlip/schemas"
    ];
    Labels = {
      "org.opencontainers.image.title" = "Agentlip Spark jobs";
      "org.opencontainers.image.description" = "Batch jobs over the event log of Agentlip Appliance";
      "org.opencontainers.image.licenses" = "MIT";
      "org.opencontainers.image.version" = agentlip.version;
    };
  };
}
