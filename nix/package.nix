# The commands agentlip and agentlipd.
#
# They come from a Python environment, not from buildPythonApplication: the appliance starts
# processes with `sys.executable`, which must find the same packages.
{
  lib,
  python313, # locked.nix has wheels for this version
  runCommand,
}:

let
  python = python313;
  ps = python.pkgs;
  locked = ps.callPackage ./locked.nix { };

  version = lib.head (
    builtins.match ''.*__version__ = "([^"]+)".*'' (builtins.readFile ../appliance/__init__.py)
  );

  # As in pyproject.toml; a test compares them.
  dependencies = {
    base = [
      ps.cronsim
      ps.msgspec
      ps.pathspec
      ps.rfc8785
      ps.typer
      ps.websockets
    ];
    appliance = [
      ps.backports-zstd
      ps.cryptography
      ps.falcon
      ps.gevent
      locked.gunicorn
      ps.httptools
      ps.packaging
      ps.obstore
      ps.peewee
      ps.prometheus-client
      ps.pyjwt
      locked.pyrage
      ps.pynacl
      ps.urllib3
      locked.pyseccomp
    ];
    export = [
      locked.adbc-driver-sqlite
      ps.pyarrow
    ];
    report = [
      ps.deltalake
      ps.pyarrow
    ];
    network = [ ps.cryptography ];
    langgraph = [ ps.langgraph ];
    openai-agents = [ ps.openai-agents ];
  };

  module = ps.buildPythonPackage {
    pname = "agentlip";
    inherit version;
    pyproject = true;

    src = lib.fileset.toSource {
      root = ../.;
      fileset = lib.fileset.unions [
        ../pyproject.toml
        ../setup.py
        ../README.md
        ../LICENSE
        ../appliance
        ../doctor
        ../migrations
        ../docs/reference/checks.md
        ../docs/reference/checks
      ];
    };

    build-system = [ ps.setuptools ];
    dependencies = dependencies.base;
    optional-dependencies = removeAttrs dependencies [ "base" ];

    # The lower bounds are those of the lock files; nixpkgs may be older.
    pythonRelaxDeps = true;

    # The tests need the checkout, and ports.
    doCheck = false;
    pythonImportsCheck = [
      "agentlip.cli"
      "agentlip.sdk"
    ];

    meta = {
      description = "Self-hosted coordination appliance for AI agents";
      license = lib.licenses.mit;
      platforms = [
        "x86_64-linux"
        "aarch64-linux"
      ];
    };
  };

  environment = python.withPackages (
    _: [ module ] ++ lib.concatLists (lib.attrValues module.optional-dependencies)
  );
in
runCommand "agentlip-${version}"
  {
    pname = "agentlip";
    inherit version;
    passthru = {
      inherit
        dependencies
        environment
        locked
        module
        python
        ;
    };
    meta = module.meta // {
      mainProgram = "agentlip";
    };
  }
  ''
    mkdir -p $out/bin
    ln -s ${environment}/bin/agentlip ${environment}/bin/agentlipd $out/bin/
    $out/bin/agentlip --version
    ${environment}/bin/python -c 'import agentlip.app, pyarrow'
  ''
