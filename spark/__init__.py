"""Batch jobs over the closed segments of the log. Imports nothing of the appliance."""
