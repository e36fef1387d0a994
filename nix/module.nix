# The NixOS module: services.agentlip.
{
  config,
  lib,
  pkgs,
  ...
}:

let
  inherit (lib) mkOption types;

  cfg = config.services.agentlip;
  toml = pkgs.formats.toml { };
  hardening = import ./hardening.nix { inherit lib; };

  # Each role, with the roles that it needs and whether it is on by default: `just settings` writes it from the classes of the subsystems.
  roles = builtins.fromJSON (builtins.readFile ./roles.json);
  roleNames = lib.attrNames roles;
  missingRoles = role: lib.subtractLists cfg.roles roles.${role}.needs;

  isLoopback = lib.elem cfg.host [
    "127.0.0.1"
    "::1"
    "localhost"
  ];
  inVarLib = dataDir: lib.hasPrefix "/var/lib/" dataDir;
  backupsOutside = lib.hasPrefix "/" cfg.backup.directory;

  settingsFile = toml.generate "agentlip.toml" cfg.settings;
in
{
  options.services.agentlip = {
    enable = lib.mkEnableOption "Agentlip Appliance, a coordination hub for AI agents";

    package = mkOption {
      type = types.package;
      defaultText = lib.literalExpression "the package of the flake";
      description = "The package with `agentlip` and `agentlipd`.";
    };

    dataDir = mkOption {
      type = types.str;
      default = "/var/lib/agentlip";
      description = ''
        The workspace: an absolute path. The service writes to this directory only. Its
        `agentlip.toml` is replaced with {option}`services.agentlip.settings` at every start.
      '';
    };

    user = mkOption {
      type = types.str;
      default = "agentlip";
      description = "The account of the service. It is created if the name is `agentlip`.";
    };

    group = mkOption {
      type = types.str;
      default = "agentlip";
      description = "The group of the service. It is created if the name is `agentlip`.";
    };

    host = mkOption {
      type = types.str;
      default = "127.0.0.1";
      example = "10.0.0.5";
      description = "The address to listen on. By default only this machine can connect.";
    };

    port = mkOption {
      type = types.port;
      default = 7464;
      description = "The port to listen on.";
    };

    unsafeNetwork = mkOption {
      type = types.bool;
      default = false;
      description = ''
        Allow a {option}`services.agentlip.host` that other machines can reach. The appliance has
        no TLS of its own, so tokens can be read on the way. Better: keep the default address and
        put a TLS proxy such as Caddy in front.
      '';
    };

    openFirewall = mkOption {
      type = types.bool;
      default = false;
      description = "Open {option}`services.agentlip.port` in the firewall.";
    };

    roles = mkOption {
      type = types.listOf (types.enum roleNames);
      default = lib.filter (role: roles.${role}.isOn) roleNames;
      example = [ "broker" ];
      description = "The subsystems that run. The default is those that are on by default in `[roles]`.";
    };

    backup = {
      enable = mkOption {
        type = types.bool;
        default = true;
        description = "Make backups on a schedule.";
      };

      everySeconds = mkOption {
        type = types.ints.positive;
        default = 3600;
        description = "Seconds between two backups; more if they take long.";
      };

      directory = mkOption {
        type = types.str;
        default = ".agentlip/backups";
        example = "/mnt/backups/agentlip";
        description = ''
          Where backups are stored. A relative path is below
          {option}`services.agentlip.dataDir`. An absolute one is created by nobody; it must exist,
          and the service's account must be able to write to it.
        '';
      };
    };

    writablePaths = mkOption {
      type = types.listOf types.str;
      default = [ ];
      example = [ "/mnt/other-disk/agentlip" ];
      description = ''
        More directories that the service may write to, for example those of
        `file://` backup targets.
      '';
    };

    settings = mkOption {
      type = types.submodule { freeformType = toml.type; };
      default = { };
      example = lib.literalExpression ''
        {
          outbox.brokers = [ { url = "https://broker.example.org"; } ];
          mail.password_file = "/run/credentials/agentlip.service/smtp";
        }
      '';
      description = ''
        The content of `agentlip.toml`; see the reference of settings. It is in the Nix store, which
        every user can read: name secrets by file, with {option}`services.agentlip.credentials`.
      '';
    };

    environmentFile = mkOption {
      type = types.nullOr types.str;
      default = null;
      example = "/run/secrets/agentlip.env";
      description = "A file with variables `AGENTLIP_<SECTION>__<FIELD>=VALUE`, which replace settings.";
    };

    credentials = mkOption {
      type = types.attrsOf types.str;
      default = { };
      example = {
        smtp = "/run/secrets/smtp-password";
      };
      description = ''
        Secret files that systemd reads as root. The service finds each of them as
        `/run/credentials/agentlip.service/NAME`.
      '';
    };
  };

  config = lib.mkIf cfg.enable {
    assertions = [
      {
        assertion = builtins.match "/[[:alnum:]._/@:+-]+" cfg.dataDir != null;
        message = "services.agentlip.dataDir must be an absolute path without spaces, for example /var/lib/agentlip; it is \"${cfg.dataDir}\".";
      }
      {
        assertion = !lib.hasPrefix builtins.storeDir cfg.dataDir;
        message = "services.agentlip.dataDir is in the Nix store, which is read-only. Write it as a string, \"/var/lib/agentlip\", not as a path.";
      }
      {
        assertion = isLoopback || cfg.unsafeNetwork;
        message = "services.agentlip.host is \"${cfg.host}\", which other machines can reach, and the appliance has no TLS. Keep 127.0.0.1 and put a TLS proxy in front (services.caddy), or set services.agentlip.unsafeNetwork = true on a network that you trust.";
      }
      {
        assertion = !(cfg.openFirewall && isLoopback);
        message = "services.agentlip.openFirewall has no effect while services.agentlip.host is \"${cfg.host}\": only this machine can connect. Open the port of the TLS proxy instead.";
      }
    ]
    ++ map (role: {
      assertion = missingRoles role == [ ];
      message = "services.agentlip.roles has \"${role}\", which needs ${lib.concatStringsSep " and " (missingRoles role)}. Add it, or remove \"${role}\".";
    }) cfg.roles;

    services.agentlip.settings = {
      http = {
        inherit (cfg) host port;
        unsafe_network = cfg.unsafeNetwork;
      };
      roles = lib.genAttrs roleNames (role: lib.elem role cfg.roles);
      backup = {
        enabled = cfg.backup.enable;
        every_seconds = cfg.backup.everySeconds;
        inherit (cfg.backup) directory;
      };
    };

    environment.systemPackages = [ cfg.package ];

    networking.firewall.allowedTCPPorts = lib.mkIf cfg.openFirewall [ cfg.port ];

    users.users = lib.mkIf (cfg.user == "agentlip") {
      agentlip = {
        isSystemUser = true;
        inherit (cfg) group;
        home = cfg.dataDir;
      };
    };
    users.groups = lib.mkIf (cfg.group == "agentlip") { agentlip = { }; };

    systemd.tmpfiles.rules = lib.mkIf (!inVarLib cfg.dataDir) [
      "d '${cfg.dataDir}' 0750 ${cfg.user} ${cfg.group} - -"
    ];

    systemd.services.agentlip = {
      description = "Agentlip Appliance for ${cfg.dataDir}";
      after = [ "network.target" ];
      wantedBy = [ "multi-user.target" ];
      startLimitIntervalSec = 60;
      startLimitBurst = 5;

      # A copy, because a backup contains the settings.
      preStart = "install -m 0640 ${settingsFile} ${cfg.dataDir}/agentlip.toml";

      serviceConfig = {
        Type = "notify";
        TimeoutStartSec = "infinity";
        WatchdogSec = 120;
        User = cfg.user;
        Group = cfg.group;
        WorkingDirectory = cfg.dataDir;
        ExecStart = "${cfg.package}/bin/agentlipd up --foreground --workspace ${cfg.dataDir}";
        # After startLimitBurst failed starts (bad settings, a second hub) systemd gives up.
        Restart = "on-failure";
        RestartSec = 2;
        TimeoutStopSec = 20;
        KillMode = "mixed";
        UMask = "0077";
        LimitNOFILE = 8192;
        MemoryHigh = "70%";
        MemoryMax = "80%";
        OOMPolicy = "continue";
      }
      // lib.optionalAttrs (inVarLib cfg.dataDir) {
        StateDirectory = lib.removePrefix "/var/lib/" cfg.dataDir;
        StateDirectoryMode = "0750";
      }
      // lib.optionalAttrs (cfg.environmentFile != null) { EnvironmentFile = cfg.environmentFile; }
      // lib.optionalAttrs (cfg.credentials != { }) {
        LoadCredential = lib.mapAttrsToList (name: path: "${name}:${path}") cfg.credentials;
      }
      // hardening {
        inherit (cfg) dataDir;
        writable = cfg.writablePaths ++ lib.optional backupsOutside cfg.backup.directory;
      };
    };
  };
}
