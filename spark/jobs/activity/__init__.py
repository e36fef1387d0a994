"""Turns silver into gold: daily counts by sender and topic, and who answers whom."""
