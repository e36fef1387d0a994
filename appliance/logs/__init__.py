"""The log of the appliance: its files, their rotation, and its level while it runs."""
