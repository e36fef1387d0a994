# Packages that record the arguments they were made with, as `made`.
{ lib, system }:

let
  derivation =
    name: made:
    builtins.derivation {
      inherit name system;
      builder = "/bin/sh";
    }
    // (made.passthru or { })
    // {
      inherit made;
      pname = made.pname or name;
      version = made.version or "0";
      meta = made.meta or { };
    };

  # Fills in the arguments of a package's file from `scope`; others must have a default.
  callPackageWith =
    scope: file: given:
    let
      make = if builtins.isFunction file then file else import file;
      wanted = builtins.functionArgs make;
    in
    make (builtins.intersectAttrs wanted scope // given);

  named = names: lib.genAttrs names (name: derivation name { });

  python = derivation "python3-3.13" { } // {
    sitePackages = "lib/python3.13/site-packages";
    withPackages = choose: derivation "python3-3.13-env" { packages = choose python.pkgs; };
    pkgs =
      named [
        "argcomplete"
        "backports-zstd"
        "cronsim"
        "cryptography"
        "deltalake"
        "falcon"
        "fsspec"
        "gevent"
        "httptools"
        "hypothesis"
        "langgraph"
        "msgspec"
        "mypy"
        "obstore"
        "openai-agents"
        "packaging"
        "pandas"
        "pathspec"
        "peewee"
        "prometheus-client"
        "pyjwt"
        "pyarrow"
        "pynacl"
        "pytest"
        "pytest-xdist"
        "pyyaml"
        "rfc8785"
        "setuptools"
        "typer"
        "typing-extensions"
        "urllib3"
        "websockets"
        "wheel"
      ]
      // {
        inherit python;
        callPackage = callPackageWith (packages // python.pkgs);
        buildPythonPackage =
          made:
          derivation "python3.13-${made.pname}-${made.version}" made
          // {
            optional-dependencies = made.optional-dependencies or { };
          };
        pyspark = derivation "pyspark" { } // {
          overridePythonAttrs =
            change:
            let
              made = change { };
            in
            derivation "pyspark-${made.version}" (made // { pname = "pyspark"; })
            // {
              optional-dependencies.sql = with python.pkgs; [
                pandas
                pyarrow
              ];
            };
        };
      };
  };

  packages =
    named [
      "autoPatchelfHook"
      "bash"
      "coreutils"
      "curl"
      "git"
      "gnugrep"
      "gnused"
      "jdk17_headless"
      "just"
      "libseccomp"
      "openssl"
      "procps"
      "ruff"
      "shellcheck"
      "tini"
    ]
    // {
      inherit lib;
      stdenv = {
        hostPlatform = { inherit system; };
        cc.cc = derivation "gcc" { };
      };
      python313 = python;
      unixtools = named [ "hostname" ];
      callPackage = callPackageWith packages;
      extend =
        overlay:
        let
          changed = packages // overlay final packages;
          final = changed // {
            callPackage = callPackageWith final;
          };
        in
        final;
      fetchMavenArtifact = made: derivation "jar-${made.artifactId}" made;
      fetchPypi = made: derivation "source-${made.pname}" made;
      mkShell = made: derivation "nix-shell" made;
      runCommand =
        name: made: command:
        derivation name (made // { inherit command; });
      writeTextDir = name: text: derivation (baseNameOf name) { inherit text; };
      dockerTools =
        named [
          "caCertificates"
          "usrBinEnv"
        ]
        // {
          streamLayeredImage = made: derivation "stream-${made.name}" made;
        };
      formats.toml = _: {
        type = lib.types.anything;
        generate =
          name: value:
          derivation name { }
          // {
            outPath = builtins.toFile name (builtins.toJSON value);
          };
      };
      testers.runNixOSTest = made: derivation "vm-test-run-${made.name}" made;
    };
in
packages
