"""Backups of a whole workspace: sets of files, which are verified by restoring them."""
