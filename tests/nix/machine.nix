# What the NixOS module makes of some options. `lib` and `pkgs`: of nixpkgs, or in its place.
# A wrong option throws; `refusals` has the messages of assertions that don't hold.
{
  lib,
  pkgs,
  module,
  options,
}:

let
  anything =
    default:
    lib.mkOption {
      type = lib.types.anything;
      inherit default;
    };
  surroundings.options = {
    assertions = anything [ ];
    environment = anything { };
    networking = anything { };
    systemd = anything { };
    users = anything { };
  };
  inherit
    (lib.evalModules {
      modules = [
        surroundings
        module
        { services.agentlip = options; }
      ];
      specialArgs = { inherit pkgs; };
    })
    config
    ;
in
{
  refusals = map (each: each.message) (lib.filter (each: !each.assertion) config.assertions);
  inherit (config.services.agentlip) settings;
  service = config.systemd.services.agentlip or null;
  tmpfiles = config.systemd.tmpfiles.rules or [ ];
  ports = config.networking.firewall.allowedTCPPorts or [ ];
  users = config.users.users or { };
}
