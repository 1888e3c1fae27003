"""The types that users declare: looked up from annotations, and made of JSON. Imports the core alone."""
