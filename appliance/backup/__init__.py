"""Backs up a whole workspace into files, and verifies backups by restoring them."""
