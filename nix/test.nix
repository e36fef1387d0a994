# Boots a machine with the module, posts, backs up, posts again and restores.
{ module }:
{
  name = "agentlip";

  nodes.machine =
    { pkgs, ... }:
    {
      imports = [ module ];
      environment.systemPackages = [ pkgs.curl ];
      services.agentlip.enable = true;
      virtualisation.diskSize = 4096; # MiB; the doctor warns below 1 GiB of free space
    };

  testScript = ''
    AGENTLIP = "runuser -u agentlip -- agentlip --workspace /var/lib/agentlip"


    def wait_until_ready():
        machine.wait_for_unit("agentlip.service")
        machine.wait_until_succeeds("curl --fail --silent http://127.0.0.1:7464/-/ready")


    def post(text):
        machine.succeed(
            f"{AGENTLIP} msg send --channel general --topic drill --sender test --content '{text}'"
        )


    def messages():
        return machine.succeed(f"{AGENTLIP} msg tail --channel general --topic drill --json")


    with subtest("the service starts and accepts messages"):
        wait_until_ready()
        machine.succeed(f"{AGENTLIP} channel create general")
        machine.succeed(f"{AGENTLIP} topic create --channel general drill")
        post("before the backup")

    with subtest("a backup is good"):
        machine.succeed(f"{AGENTLIP} backup create")
        machine.succeed(f"{AGENTLIP} backup verify --latest")
        post("after the backup")
        assert "after the backup" in messages()

    with subtest("a restore brings back the state of the backup"):
        machine.succeed("systemctl stop agentlip.service")
        machine.succeed(f"{AGENTLIP} backup restore --latest --yes")
        machine.succeed("systemctl start agentlip.service")
        wait_until_ready()
        assert "before the backup" in messages()
        assert "after the backup" not in messages()
        machine.succeed(f"{AGENTLIP} doctor --quiet")
  '';
}
