"""The subsystems that operate the appliance. They run whatever roles are on."""
