"""`python -m holdfast.testing postgresql://…` certifies a server."""

import sys

from holdfast.testing.certification.certificate import main

sys.exit(main())
