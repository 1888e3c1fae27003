"""`python -m holdfast.testing postgresql://…` certifies a server."""

import sys

try:
    from holdfast.testing.certification.certificate import main
except ModuleNotFoundError as missing:
    package = (missing.name or "").partition(".")[0]
    if package not in ("psycopg", "pytest"):
        raise
    print(
        f"error: {package} is not installed\nhelp: from a checkout: pip install 'path/to/holdfast[postgres,testing]'",
        file=sys.stderr,
    )
    sys.exit(2)

sys.exit(main())
