"""Where logs are kept: one small protocol, several kinds of store."""
