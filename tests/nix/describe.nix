# What the tests compare of each group of outputs, as values without functions. The packages are
# those of ./packages.nix, which record their arguments.
let
  names = map (package: package.pname);
  requirement = package: {
    inherit (package) pname version;
    source = package.made.src.made or null;
  };
  image = image: {
    inherit (image.made)
      name
      tag
      created
      config
      fakeRootCommands
      ;
    contents = names image.made.contents;
  };
in
{
  packages = builtins.mapAttrs (
    _: packages: {
      files = packages.default.module.made.src.files;
      dependencies = builtins.mapAttrs (_: names) packages.default.dependencies;
      locked = builtins.mapAttrs (_: requirement) packages.default.locked;
      image = image packages.image;
      sparkImage = image packages.sparkImage;
      spark = builtins.concatMap (
        content: names (content.made.packages or [ ])
      ) packages.sparkImage.made.contents;
      drvPaths = builtins.mapAttrs (_: package: package.drvPath) packages;
    }
  );
  apps = builtins.mapAttrs (_: builtins.mapAttrs (_: app: app.program));
  devShells = builtins.mapAttrs (_: shells: names shells.default.made.packages);
  checks = builtins.mapAttrs (_: checks: checks.nixos.made.testScript);
}
