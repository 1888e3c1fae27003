"""What users and we ourselves test with."""
