"""`python -m gpubloom.metrics_server`: the server process of `bloom train --serve-metrics`."""

from gpubloom.metrics_server.process import main

main()
