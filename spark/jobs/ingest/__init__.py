"""Bronze to silver: closed segments become typed tables with the full history of messages."""
