"""`python -m gpubloom.traincard.live`: the server process of `bloom train --serve-metrics`."""

from gpubloom.traincard.live.process import main

main()
