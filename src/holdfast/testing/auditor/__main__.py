"""`python -m holdfast.testing.auditor STORE`."""

import sys

from holdfast.testing.auditor import main

sys.exit(main())
