"""Plugins that come with the appliance. One file each, and nothing but the standard library, so
that a batch job elsewhere can be given the very same file."""
