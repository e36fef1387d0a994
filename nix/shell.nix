# What the unit tests and the linters need. The other tests use the environment of `ops/env`.
{
  agentlip,
  curl,
  git,
  just,
  mkShell,
  openssl,
  ruff,
  shellcheck,
}:

mkShell {
  packages = [
    (agentlip.python.withPackages (
      ps:
      agentlip.dependencies.base
      ++ agentlip.dependencies.appliance
      ++ agentlip.dependencies.export
      ++ agentlip.dependencies.report
      ++ [
        ps.hypothesis
        ps.mypy
        ps.pytest
        ps.pytest-xdist
        ps.pyyaml
      ]
    ))
    curl
    git
    just
    openssl
    ruff
    shellcheck
  ];

  # `agentlip` and the tests then run this checkout.
  shellHook = ''
    export PYTHONPATH="$PWD''${PYTHONPATH:+:$PYTHONPATH}"
  '';
}
