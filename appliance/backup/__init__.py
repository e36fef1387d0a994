"""Backups of a whole workspace: backups of files, which are verified by restoring them."""
