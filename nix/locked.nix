# Python packages that nixpkgs lacks, or has in a version that the appliance can't use. Versions
# and hashes are those of requirements/*.txt; a test compares them.
{
  lib,
  stdenv,
  python,
  buildPythonPackage,
  fetchPypi,
  argcomplete,
  autoPatchelfHook,
  fsspec,
  libseccomp,
  packaging,
  pyspark,
  typing-extensions,
}:

let
  system = stdenv.hostPlatform.system;

  # The package of a wheel whose file is `name-version-tag-abi-platform.whl`. `files`: platform and hash for each
  # system, or for `any`.
  fromWheel =
    {
      name,
      version,
      tag ? "py3",
      abi ? "none",
      files,
      dependencies ? [ ],
      postInstall ? "",
      description,
      license,
    }:
    let
      native = !(files ? any);
      file =
        files.any or files.${system} or (throw "agentlip: ${name} ${version} has no wheel for ${system}");
    in
    buildPythonPackage {
      pname = lib.replaceStrings [ "_" ] [ "-" ] name;
      inherit version dependencies postInstall;
      format = "wheel";
      src = fetchPypi {
        pname = name;
        inherit version abi;
        format = "wheel";
        dist = tag;
        python = tag;
        inherit (file) platform hash;
      };
      nativeBuildInputs = lib.optional native autoPatchelfHook;
      buildInputs = lib.optional native (lib.getLib stdenv.cc.cc);
      pythonImportsCheck = [ name ];
      meta = {
        inherit description license;
        sourceProvenance = [
          (if native then lib.sourceTypes.binaryNativeCode else lib.sourceTypes.fromSource)
        ];
      };
    };

  adbc-driver-manager = fromWheel {
    name = "adbc_driver_manager";
    version = "1.13.0";
    tag = "cp313";
    abi = "cp313";
    files = {
      x86_64-linux = {
        platform = "manylinux_2_27_x86_64.manylinux_2_28_x86_64";
        hash = "sha256-uBgZvTX7R7WXV6sHUEHjJuwnjdrsM/dba6rfEb4bwGY=";
      };
      aarch64-linux = {
        platform = "manylinux_2_26_aarch64.manylinux_2_28_aarch64";
        hash = "sha256-gskIYYlmU8LLw5908CYcC7DChios7uYPKXRN9uGNoXU=";
      };
    };
    dependencies = [ typing-extensions ];
    description = "Loads drivers of Arrow Database Connectivity";
    license = lib.licenses.asl20;
  };
in
{
  inherit adbc-driver-manager;

  adbc-driver-sqlite = fromWheel {
    name = "adbc_driver_sqlite";
    version = "1.13.0";
    files = {
      x86_64-linux = {
        platform = "manylinux_2_28_x86_64";
        hash = "sha256-+1HzB8s8RapUdshOroN4EHmTmDLzXdVGEdvmCVYnyj0=";
      };
      aarch64-linux = {
        platform = "manylinux_2_28_aarch64";
        hash = "sha256-n7b/et8FwBqc1e9cYskm9q9nIPd06CSCnH9ki4AYSK8=";
      };
    };
    dependencies = [ adbc-driver-manager ];
    description = "Reads SQLite as Arrow tables";
    license = lib.licenses.asl20;
  };

  # appliance.web uses private parts of gunicorn, so only this version fits.
  gunicorn = fromWheel {
    name = "gunicorn";
    version = "27.0.1";
    files.any = {
      platform = "any";
      hash = "sha256-N4smuaOK3PRZLyiCgjPBcWrMVegz6ga/SHGXgu+qDRA=";
    };
    dependencies = [ packaging ];
    description = "WSGI server";
    license = lib.licenses.mit;
  };

  hdfs-native = fromWheel {
    name = "hdfs_native";
    version = "0.14.7";
    tag = "cp310";
    abi = "abi3";
    files = {
      x86_64-linux = {
        platform = "manylinux_2_17_x86_64.manylinux2014_x86_64";
        hash = "sha256-XRFBPAtMMdnTOVbHAVUha/+ewo2zu9CWHyir18t2aC4=";
      };
      aarch64-linux = {
        platform = "manylinux_2_17_aarch64.manylinux2014_aarch64";
        hash = "sha256-1L7viW/mV7wlPVfGfQ5kQC4EnVRHwRJJ/pz5mXMWg/8=";
      };
    };
    dependencies = [
      argcomplete
      fsspec
      typing-extensions
    ];
    description = "Client of HDFS";
    license = lib.licenses.asl20;
  };

  pyrage = fromWheel {
    name = "pyrage";
    version = "1.4.0";
    tag = "cp310";
    abi = "abi3";
    files = {
      x86_64-linux = {
        platform = "manylinux_2_17_x86_64.manylinux2014_x86_64";
        hash = "sha256-f06wy8K0ruXerJhixHs4lYZt9VVBU5Ua+CLpxYHmhVg=";
      };
      aarch64-linux = {
        platform = "manylinux_2_17_aarch64.manylinux2014_aarch64";
        hash = "sha256-+GizYMzT+DYybUK1Mvrj6OuDQKiMygo5wK4Q/OaPbMU=";
      };
    };
    description = "Encryption of files in the format of age";
    license = lib.licenses.mit;
  };

  pyseccomp = fromWheel {
    name = "pyseccomp";
    version = "0.1.2";
    files.any = {
      platform = "any";
      hash = "sha256-GRd3SOEgJgPKSyxB1yiRZALAGMT+5J3KHjVo6iGLfCM=";
    };
    # NixOS has no cache of libraries in which find_library could look.
    postInstall = ''
      substituteInPlace $out/${python.sitePackages}/pyseccomp.py \
        --replace-fail 'ctypes.util.find_library("seccomp")' \
          '"${lib.getLib libseccomp}/lib/libseccomp.so.2"'
    '';
    description = "Python interface to libseccomp";
    license = lib.licenses.lgpl21Only;
  };

  # The jobs are tested with this version only.
  pyspark = pyspark.overridePythonAttrs (_: rec {
    version = "4.2.1";
    src = fetchPypi {
      pname = "pyspark";
      inherit version;
      hash = "sha256-15t8juQeZqkgL+b2AMqQuTHKVxrp298xxY0mcuUQLaA=";
    };
  });
}
