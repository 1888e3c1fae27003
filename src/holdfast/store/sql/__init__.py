"""The schemas, one folder a dialect, one numbered file a change."""
