"""The file of the audit log: written by the appliance, and by commands without it."""
