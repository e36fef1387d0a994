# agentlip, agentlip-image and agentlip-spark-image.
final: _: {
  agentlip = final.callPackage ./package.nix { };
  agentlip-image = final.callPackage ./image.nix { };
  agentlip-spark-image = final.callPackage ./spark-image.nix { };
}
