# In the place of nixpkgs, where it can't be fetched: enough of it to evaluate all outputs. A
# package here has a name and the arguments it was made with; nothing can be built.
{
  outputs =
    { self }:
    let
      lib = import ./lib.nix;
    in
    {
      inherit lib;
      legacyPackages = lib.genAttrs [
        "x86_64-linux"
        "aarch64-linux"
      ] (system: import ./packages.nix { inherit lib system; });
    };
}
