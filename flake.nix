{
  description = "Self-hosted coordination appliance for AI agents";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-26.05";

  outputs =
    { self, nixpkgs }:
    let
      inherit (nixpkgs) lib;
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      forAllSystems = make: lib.genAttrs systems (system: make system nixpkgs.legacyPackages.${system});
    in
    {
      overlays.default = import ./nix/overlay.nix;

      packages = forAllSystems (
        _: pkgs:
        let
          ours = pkgs.extend self.overlays.default;
        in
        {
          default = ours.agentlip;
          image = ours.agentlip-image;
          sparkImage = ours.agentlip-spark-image;
        }
      );

      apps = forAllSystems (
        system: _:
        let
          app = name: description: {
            type = "app";
            program = "${self.packages.${system}.default}/bin/${name}";
            meta = { inherit description; };
          };
        in
        rec {
          default = agentlip;
          agentlip = app "agentlip" "The command line of the appliance";
          agentlipd = app "agentlipd" "Starts, stops and inspects the appliance";
        }
      );

      devShells = forAllSystems (
        system: pkgs: {
          default = pkgs.callPackage ./nix/shell.nix { agentlip = self.packages.${system}.default; };
        }
      );

      nixosModules.default =
        { lib, pkgs, ... }:
        {
          imports = [ ./nix/module.nix ];
          services.agentlip.package = lib.mkDefault (
            self.packages.${pkgs.stdenv.hostPlatform.system}.default
          );
        };

      checks = forAllSystems (
        system: pkgs: {
          package = self.packages.${system}.default;
          nixos = pkgs.testers.runNixOSTest (import ./nix/test.nix { module = self.nixosModules.default; });
        }
      );
    };
}
